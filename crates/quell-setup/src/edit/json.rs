//! The editor for JSON with comments, on a concrete syntax tree that keeps every byte it does not change.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{
    CstArray, CstInputValue, CstLeafNode, CstNode, CstObject, CstObjectProp, CstRootNode,
};

use super::cut::cut;
use super::{EditError, EntryValue, KeyPath, Result, ServerEntry, below, list_key, no_path, words_of};
use crate::agents::{AgentFacts, CommandStyle};

/// Comments and trailing commas, and nothing else that JSON does not have.
pub(super) const JSONC: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(crate) struct JsonText {
    root: CstRootNode,
}

impl JsonText {
    pub fn parse(text: &str) -> Result<Self> {
        let root =
            CstRootNode::parse(text, &JSONC).map_err(|error| EditError::Unparsable(error.to_string()))?;
        Ok(Self { root })
    }

    pub fn text(&self) -> String {
        self.root.to_string()
    }

    pub fn servers(&self, facts: &AgentFacts) -> Result<Vec<ServerEntry>> {
        let mut servers = Vec::new();
        for pattern in facts.tables {
            let Some(root) = self.root_object()? else { continue };
            let mut tables = vec![(KeyPath::new(), root)];
            for key in *pattern {
                let mut inner = Vec::new();
                for (path, table) in tables {
                    let keys = if *key == "*" { keys(&table)? } else { vec![(*key).to_owned()] };
                    for key in keys {
                        let path = below(&path, &key);
                        if let Some(found) = object_in(&table, &path)? {
                            inner.push((path, found));
                        }
                    }
                }
                tables = inner;
            }
            for (path, table) in tables {
                for name in keys(&table)? {
                    servers.extend(self.server(facts, &below(&path, &name))?);
                }
            }
        }
        Ok(servers)
    }

    pub fn server(&self, facts: &AgentFacts, path: &[String]) -> Result<Option<ServerEntry>> {
        let Some(entry) = self.object(path)? else { return Ok(None) };
        let words = words_of(
            facts,
            path,
            |key| text_in(&entry, &below(path, key)),
            |key| Ok(array_in(&entry, &below(path, key))?.map(|(_, words)| words)),
            |key| Ok(only(&entry, &below(path, key))?.is_some()),
        )?;
        Ok(Some(ServerEntry { path: path.to_vec(), words }))
    }

    pub fn has_table(&self, path: &[String]) -> Result<bool> {
        Ok(self.object(path)?.is_some())
    }

    pub fn add(&mut self, path: &[String], entry: Vec<(&'static str, EntryValue)>) -> Result<()> {
        let (name, table) = path.split_last().ok_or_else(no_path)?;
        let mut object = self.root_object()?.unwrap_or_else(|| self.root.object_value_or_set());
        for depth in 1..=table.len() {
            object = match object_in(&object, &table[..depth])? {
                Some(found) => found,
                None => {
                    let made = object.append(&table[depth - 1], CstInputValue::Object(Vec::new()));
                    made.object_value().ok_or_else(no_path)?
                }
            };
        }
        let entry = entry.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        object.append(name, CstInputValue::Object(entry));
        Ok(())
    }

    pub fn set_program(&mut self, style: CommandStyle, path: &[String], program: &str) -> Result<()> {
        let entry = self.object(path)?.ok_or_else(no_path)?;
        let at = below(path, "command");
        match style {
            CommandStyle::CommandAndArgs => {
                let property = only(&entry, &at)?.ok_or_else(no_path)?;
                property.set_value(program.into());
            }
            CommandStyle::OneList => {
                let (array, _) = array_in(&entry, &at)?.ok_or_else(no_path)?;
                let first = array.elements().into_iter().next().and_then(|node| node.as_string_lit());
                first.ok_or_else(no_path)?.replace_with(program.into());
            }
        }
        Ok(())
    }

    pub fn splice(
        &mut self,
        style: CommandStyle,
        path: &[String],
        count: usize,
        front: &[String],
    ) -> Result<()> {
        let entry = self.object(path)?.ok_or_else(no_path)?;
        let at = below(path, list_key(style));
        match array_in(&entry, &at)? {
            // The first element stays and gets another value: so comments before it stay before the first one.
            Some((array, words)) => {
                let new: Vec<&str> =
                    front.iter().chain(words.iter().skip(count)).map(String::as_str).collect();
                if let (Some(first), Some(word)) = (array.elements().first(), new.first())
                    && let Some(first) = first.as_string_lit()
                {
                    first.replace_with((*word).into());
                }
                let kept = usize::from(!words.is_empty() && !new.is_empty());
                // Of the others, those at the end are right.
                let same = words.len().saturating_sub(count.max(kept)).min(new.len() - kept);
                for _ in kept..words.len() - same {
                    let text = cut(&self.text(), &at, Some(kept)).ok_or_else(no_path)?;
                    self.become_text(&text)?;
                }
                let entry = self.object(path)?.ok_or_else(no_path)?;
                let (array, _) = array_in(&entry, &at)?.ok_or_else(no_path)?;
                for (index, word) in new.iter().enumerate().take(new.len() - same).skip(kept) {
                    insert(&array, index, word);
                }
            }
            None => {
                let after = only(&entry, &below(path, "command"))?.map(|found| found.property_index() + 1);
                entry.insert(after.unwrap_or(0), list_key(style), front.to_vec().into());
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, path: &[String]) -> Result<()> {
        match cut(&self.text(), path, None) {
            Some(text) => self.become_text(&text),
            None => Ok(()),
        }
    }

    pub fn remove_if_empty(&mut self, path: &[String]) -> Result<()> {
        match self.object(path)? {
            Some(table) if table.properties().is_empty() => self.remove(path),
            Some(_) | None => Ok(()),
        }
    }

    fn become_text(&mut self, text: &str) -> Result<()> {
        *self = Self::parse(text)?;
        Ok(())
    }

    /// None if the text has no value.
    fn root_object(&self) -> Result<Option<CstObject>> {
        match self.root.value() {
            None => Ok(None),
            Some(value) => value.as_object().map(Some).ok_or_else(|| not(&[], "an object")),
        }
    }

    fn object(&self, path: &[String]) -> Result<Option<CstObject>> {
        let mut found = self.root_object()?;
        for depth in 1..=path.len() {
            found = match found {
                Some(object) => object_in(&object, &path[..depth])?,
                None => return Ok(None),
            };
        }
        Ok(found)
    }
}

impl From<EntryValue> for CstInputValue {
    fn from(value: EntryValue) -> Self {
        match value {
            EntryValue::Text(text) => text.into(),
            EntryValue::Words(words) => words.into(),
            EntryValue::Flag(flag) => flag.into(),
            EntryValue::Number(number) => number.into(),
        }
    }
}

fn not(path: &[String], expected: &'static str) -> EditError {
    EditError::WrongType { path: path.to_vec(), expected }
}

/// The keys of an object. One that is there twice is noticed by [`only`].
fn keys(object: &CstObject) -> Result<Vec<String>> {
    object.properties().iter().map(key_of).collect()
}

fn key_of(property: &CstObjectProp) -> Result<String> {
    property.decoded_name().ok_or_else(|| EditError::Unparsable("a key can't be read".into()))
}

/// The property with the last key of `path`.
fn only(object: &CstObject, path: &[String]) -> Result<Option<CstObjectProp>> {
    let key = path.last().ok_or_else(no_path)?;
    let mut found = None;
    for property in object.properties() {
        if key_of(&property)? == *key && found.replace(property).is_some() {
            return Err(EditError::Duplicate(path.to_vec()));
        }
    }
    Ok(found)
}

fn value_in(object: &CstObject, path: &[String]) -> Result<Option<CstNode>> {
    Ok(only(object, path)?.and_then(|property| property.value()))
}

fn object_in(object: &CstObject, path: &[String]) -> Result<Option<CstObject>> {
    let value = value_in(object, path)?;
    value.map(|value| value.as_object().ok_or_else(|| not(path, "an object"))).transpose()
}

fn text_of(value: &CstNode) -> Option<String> {
    value.as_string_lit()?.decoded_value().ok()
}

fn text_in(object: &CstObject, path: &[String]) -> Result<Option<String>> {
    let value = value_in(object, path)?;
    value.map(|value| text_of(&value).ok_or_else(|| not(path, "a string"))).transpose()
}

/// A list of strings, and the strings.
fn array_in(object: &CstObject, path: &[String]) -> Result<Option<(CstArray, Vec<String>)>> {
    let Some(value) = value_in(object, path)? else { return Ok(None) };
    let wrong = || not(path, "a list of strings");
    let array = value.as_array().ok_or_else(wrong)?;
    let words: Option<Vec<String>> = array.elements().iter().map(text_of).collect();
    Ok(Some((array, words.ok_or_else(wrong)?)))
}

/// Inserts an element with white space of its own, but without that of the next one, which it would double.
fn insert(array: &CstArray, index: usize, word: &str) {
    let inserted = array.insert(index, word.into());
    let after: Vec<CstNode> =
        inserted.trailing_comma().map(|comma| comma.next_siblings().take(2).collect()).unwrap_or_default();
    if let [CstNode::Leaf(CstLeafNode::Whitespace(own)), CstNode::Leaf(CstLeafNode::Whitespace(_))] =
        &after[..]
    {
        own.clone().remove();
    }
}
