//! The editor for TOML, on a document that keeps comments, order and spacing.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{EditError, EntryValue, KeyPath, Result, ServerEntry, below, list_key, no_path, words_of};
use crate::agents::{AgentFacts, CommandStyle};

pub(crate) struct TomlText {
    document: DocumentMut,
    /// The document has no `\r`: its editor would lose them.
    crlf: bool,
}

impl TomlText {
    pub fn parse(text: &str) -> Result<Self> {
        let (all, crlf) = (text.matches('\n').count(), text.matches("\r\n").count());
        if crlf > 0 && crlf < all {
            return Err(EditError::Unparsable("some lines end with CR LF and some with LF".into()));
        }
        let text = text.replace("\r\n", "\n");
        let document = text.parse().map_err(|error: toml_edit::TomlError| {
            let place = error.span().map(|span| {
                let before = &text[..span.start.min(text.len())];
                let line = before.matches('\n').count() + 1;
                format!("line {line}: ")
            });
            EditError::Unparsable(format!("{}{}", place.unwrap_or_default(), error.message()))
        })?;
        Ok(Self { document, crlf: crlf > 0 })
    }

    pub fn text(&self) -> String {
        let text = self.document.to_string();
        if self.crlf { text.replace('\n', "\r\n") } else { text }
    }

    pub fn servers(&self, facts: &AgentFacts) -> Result<Vec<ServerEntry>> {
        let mut servers = Vec::new();
        for pattern in facts.tables {
            let path: KeyPath = pattern.iter().map(|key| (*key).to_owned()).collect();
            let Some(table) = self.table(&path)? else { continue };
            for (name, _) in table.iter() {
                servers.extend(self.server(facts, &below(&path, name))?);
            }
        }
        Ok(servers)
    }

    pub fn server(&self, facts: &AgentFacts, path: &[String]) -> Result<Option<ServerEntry>> {
        let Some(entry) = self.table(path)? else { return Ok(None) };
        let words = words_of(
            facts,
            path,
            |key| text_in(entry, &below(path, key)),
            |key| list_in(entry, &below(path, key)),
            |key| Ok(entry.contains_key(key)),
        )?;
        Ok(Some(ServerEntry { path: path.to_vec(), words }))
    }

    pub fn has_table(&self, path: &[String]) -> Result<bool> {
        Ok(self.table(path)?.is_some())
    }

    pub fn add(&mut self, path: &[String], entry: Vec<(&'static str, EntryValue)>) -> Result<()> {
        let (name, above) = path.split_last().ok_or_else(no_path)?;
        // Checked for its type before anything is changed.
        self.table(above)?;
        let mut table: &mut dyn TableLike = self.document.as_table_mut();
        let mut is_inline = false;
        for key in above {
            if !table.contains_key(key) {
                let mut made = Table::new();
                made.set_implicit(true);
                let made = if is_inline { Item::Value(InlineTable::new().into()) } else { Item::Table(made) };
                table.insert(key, made);
            }
            let item = table.get_mut(key).ok_or_else(no_path)?;
            is_inline = item.is_inline_table();
            table = item.as_table_like_mut().ok_or_else(no_path)?;
        }
        let values = entry.into_iter().map(|(key, value)| (key, Value::from(value)));
        let made = if is_inline {
            Item::Value(InlineTable::from_iter(values).into())
        } else {
            Item::Table(Table::from_iter(values))
        };
        table.insert(name, made);
        Ok(())
    }

    pub fn set_program(&mut self, style: CommandStyle, path: &[String], program: &str) -> Result<()> {
        let command = self.item_mut(&below(path, "command")).ok_or_else(no_path)?;
        let value = match style {
            CommandStyle::CommandAndArgs => command.as_value_mut(),
            CommandStyle::OneList => command.as_array_mut().and_then(|array| array.get_mut(0)),
        };
        let value = value.ok_or_else(no_path)?;
        let decor = value.decor().clone();
        *value = Value::from(program);
        *value.decor_mut() = decor;
        Ok(())
    }

    pub fn splice(
        &mut self,
        style: CommandStyle,
        path: &[String],
        count: usize,
        front: &[String],
    ) -> Result<()> {
        let key = list_key(style);
        let entry = self.item_mut(path).and_then(Item::as_table_like_mut).ok_or_else(no_path)?;
        match entry.get_mut(key).and_then(Item::as_array_mut) {
            Some(array) => splice(array, count, front),
            None => {
                entry.insert(key, Item::Value(Array::from_iter(front).into()));
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, path: &[String]) -> Result<()> {
        let (name, above) = path.split_last().ok_or_else(no_path)?;
        if let Some(table) = self.item_mut(above).and_then(Item::as_table_like_mut) {
            table.remove(name);
        }
        Ok(())
    }

    pub fn remove_if_empty(&mut self, path: &[String]) -> Result<()> {
        match self.table(path)? {
            Some(table) if table.is_empty() => self.remove(path),
            Some(_) | None => Ok(()),
        }
    }

    fn table(&self, path: &[String]) -> Result<Option<&dyn TableLike>> {
        let mut table: &dyn TableLike = self.document.as_table();
        for depth in 1..=path.len() {
            let Some(item) = table.get(&path[depth - 1]) else { return Ok(None) };
            let wrong = || EditError::WrongType { path: path[..depth].to_vec(), expected: "a table" };
            table = item.as_table_like().ok_or_else(wrong)?;
        }
        Ok(Some(table))
    }

    fn item_mut(&mut self, path: &[String]) -> Option<&mut Item> {
        path.iter().try_fold(self.document.as_item_mut(), |item, key| {
            item.as_table_like_mut().and_then(|table| table.get_mut(key))
        })
    }
}

impl From<EntryValue> for Value {
    fn from(value: EntryValue) -> Self {
        match value {
            EntryValue::Text(text) => text.into(),
            EntryValue::Words(words) => Array::from_iter(words).into(),
            EntryValue::Flag(flag) => flag.into(),
            EntryValue::Number(number) => number.into(),
        }
    }
}

fn text_in(table: &dyn TableLike, path: &[String]) -> Result<Option<String>> {
    let item = path.last().and_then(|key| table.get(key));
    let wrong = || EditError::WrongType { path: path.to_vec(), expected: "a string" };
    item.map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).transpose()
}

fn list_in(table: &dyn TableLike, path: &[String]) -> Result<Option<Vec<String>>> {
    let item = path.last().and_then(|key| table.get(key));
    let wrong = || EditError::WrongType { path: path.to_vec(), expected: "a list of strings" };
    let words = |item: &Item| {
        let words = item.as_array()?.iter().map(|value| value.as_str().map(str::to_owned));
        words.collect::<Option<Vec<String>>>()
    };
    item.map(|item| words(item).ok_or_else(wrong)).transpose()
}

/// New words look like the first old one: on lines of their own, or beside each other.
fn splice(array: &mut Array, count: usize, front: &[String]) {
    let prefix_of = |array: &Array| {
        let prefix = array.get(0).and_then(|value| value.decor().prefix()?.as_str().map(str::to_owned));
        prefix.unwrap_or_default()
    };
    let first = prefix_of(array);
    for _ in 0..count.min(array.len()) {
        array.remove(0);
    }
    let own_lines = first.contains('\n');
    let next = match first.rsplit_once('\n') {
        Some((_, indent)) => format!("\n{indent}"),
        None => " ".to_owned(),
    };
    // A comment before the first word stays before the first word.
    if let Some(rest) = array.get_mut(0) {
        rest.decor_mut().set_prefix(if front.is_empty() { &first } else { &next });
    }
    for (index, word) in front.iter().enumerate() {
        let prefix = match index {
            0 if own_lines => first.as_str(),
            0 => "",
            _ => next.as_str(),
        };
        array.insert_formatted(index, Value::from(word.as_str()).decorated(prefix, ""));
    }
}
