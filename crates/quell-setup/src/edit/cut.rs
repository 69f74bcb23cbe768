//! Cuts a property or an element out of JSON with comments. Comments stay, whatever they are beside: they are the user's.

use std::ops::Range;

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, parse_to_ast};

use super::json::JSONC;

/// The text without the property at `path`, or without an element of the list there. None if there is nothing of the kind.
pub(super) fn cut(text: &str, path: &[String], element: Option<usize>) -> Option<String> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: true };
    let parsed = parse_to_ast(text, &collect, &JSONC).ok()?;
    let (tokens, root) = (parsed.tokens?, parsed.value?);
    let (last, above) = path.split_last()?;
    let object = above.iter().try_fold(&root, |value, key| member(value, key).map(|(_, value)| value))?;
    let (property, value) = member(object, last)?;
    let range = match element {
        Some(index) => value.as_array()?.elements.get(index)?.range(),
        None => property,
    };
    let range = range.start..range.end;
    let next = tokens.iter().find(|token| token.range.start >= range.end)?;
    let previous = tokens.iter().rev().find(|token| token.range.end <= range.start)?;
    let is_comma = |token: &&jsonc_parser::tokens::TokenAndRange| matches!(token.token, Token::Comma);
    // The comma after it, else the one before it, which would be the last of its list.
    let comma = Some(next).filter(is_comma).or_else(|| Some(previous).filter(is_comma));
    let comma = comma.map(|token| token.range.start..token.range.end);
    Some(without(text, range, comma))
}

fn member<'v, 'a>(value: &'v Value<'a>, key: &str) -> Option<(jsonc_parser::common::Range, &'v Value<'a>)> {
    let is_it = |name: &ObjectPropName| match name {
        ObjectPropName::String(name) => name.value == key,
        ObjectPropName::Word(name) => name.value == key,
    };
    let property = value.as_object()?.properties.iter().find(|property| is_it(&property.name))?;
    Some((property.range(), &property.value))
}

fn without(text: &str, range: Range<usize>, comma: Option<Range<usize>>) -> String {
    let (before, after) = (&text[..range.start], &text[range.end..]);
    let (before, after) = match comma {
        Some(comma) if comma.start >= range.end => {
            let at = comma.start - range.end;
            (before.to_owned(), format!("{}{}", &after[..at], &after[at + 1..]))
        }
        Some(comma) => (format!("{}{}", &before[..comma.start], &before[comma.end..]), after.to_owned()),
        None => (before.to_owned(), after.to_owned()),
    };
    // The line break before it goes too, with the indentation: unless something follows on its line, which would then become a part
    // of a comment above.
    let rest = after.trim_start_matches([' ', '\t']);
    let start = before.trim_end_matches([' ', '\t']);
    match start.strip_suffix('\n') {
        Some(above) if rest.is_empty() || rest.starts_with(['\r', '\n']) => {
            format!("{}{after}", above.strip_suffix('\r').unwrap_or(above))
        }
        Some(_) => format!("{before}{rest}"),
        None => format!("{start}{after}"),
    }
}
