//! Reads TOML into a tree.

use toml::{
    Spanned,
    de::{DeFloat, DeInteger, DeTable, DeValue},
};

use super::{
    error::{Fault, cut, not_exact, twice},
    tree::{Entry, Node, Value, float},
};

/// Reads the text. The parser itself refuses duplicate keys and nesting that is too deep.
pub(super) fn tree(text: &str) -> Result<Node, Fault> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let message = match error.message() {
            "duplicate key" => twice(text.get(span.clone()).unwrap_or_default()),
            message => format!("cannot read this TOML: {}", cut(message)),
        };
        Fault::new(span.start, message)
    })?;
    Ok(Node { value: map(table.into_inner())?, at: 0 })
}

fn map(table: DeTable<'_>) -> Result<Value, Fault> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let key_at = key.span().start;
        entries.push(Entry { key: key.into_inner().into_owned(), key_at, value: node(value)? });
    }
    // The parser sorts keys by name; authors expect the order of their file.
    entries.sort_by_key(|entry| entry.key_at);
    Ok(Value::Map(entries))
}

fn node(spanned: Spanned<DeValue<'_>>) -> Result<Node, Fault> {
    let at = spanned.span().start;
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => number(&integer).map_err(|message| Fault::new(at, message))?,
        DeValue::Float(value) => fraction(&value).map_err(|message| Fault::new(at, message))?,
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(value) => Value::Text(value.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(node).collect::<Result<_, _>>()?),
        DeValue::Table(table) => map(table)?,
    };
    Ok(Node { value, at })
}

fn number(integer: &DeInteger<'_>) -> Result<Value, String> {
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map(|value| Value::Number(value.into()))
        .map_err(|_| not_exact(&integer.to_string()))
}

fn fraction(value: &DeFloat<'_>) -> Result<Value, String> {
    float(value.as_str().parse().unwrap_or(f64::NAN))
}
