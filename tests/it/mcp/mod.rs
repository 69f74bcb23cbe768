//! `quell mcp`, by a client that writes and reads raw lines.

mod approval;
mod client;
mod leases;
mod output;
mod protocol;
mod rmcp_client;
mod rough_input;
mod waits;
