//! Defects that were found and fixed, each told by what happened. New ones go to the feature they belong to.

pub mod campaign;
pub mod files_and_pipes;
pub mod signals_and_trees;
pub mod similar_tools;
