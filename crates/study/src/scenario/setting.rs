//! Values that a condition or a sweep gives to keys of the scenario. They have the same form in TOML and in JSON.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, a text, a list of texts, true or false")]
pub enum Setting {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl Setting {
    /// Its number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Setting::Integer(value) => Some(*value as f64),
            Setting::Number(value) => Some(*value),
            Setting::Bool(_) | Setting::Text(_) | Setting::List(_) => None,
        }
    }

    /// From a command line: a TOML value, or a text if it is none.
    pub fn parse(text: &str) -> Setting {
        #[derive(Deserialize)]
        struct Line {
            value: Setting,
        }
        let parsed: Result<Line, _> = toml::from_str(&format!("value = {text}"));
        parsed.map_or_else(|_| Setting::Text(text.into()), |line| line.value)
    }

    /// As TOML.
    pub(crate) fn to_toml(&self) -> toml::Value {
        match self {
            Setting::Bool(value) => (*value).into(),
            Setting::Integer(value) => (*value).into(),
            Setting::Number(value) => (*value).into(),
            Setting::Text(value) => value.clone().into(),
            Setting::List(values) => values.clone().into(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Bool(value) => write!(out, "{value}"),
            Setting::Integer(value) => write!(out, "{value}"),
            Setting::Number(value) => write!(out, "{value}"),
            Setting::Text(value) => out.write_str(value),
            Setting::List(values) => out.write_str(&values.join(" + ")),
        }
    }
}

/// A value, or the table that TOML makes of an unquoted dotted key.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a key is set to a number, a text, a list of texts, true or false")]
enum Nested {
    Value(Setting),
    Table(IndexMap<String, Nested>),
}

/// Reads `"guest.vcpus" = 4` and `guest.vcpus = 4` alike.
pub(crate) fn flattened<'de, D: Deserializer<'de>>(from: D) -> Result<IndexMap<String, Setting>, D::Error> {
    let mut flat = IndexMap::new();
    flatten("", IndexMap::deserialize(from)?, &mut flat);
    Ok(flat)
}

fn flatten(prefix: &str, nested: IndexMap<String, Nested>, flat: &mut IndexMap<String, Setting>) {
    for (key, value) in nested {
        match value {
            Nested::Value(value) => drop(flat.insert(format!("{prefix}{key}"), value)),
            Nested::Table(inner) => flatten(&format!("{prefix}{key}."), inner, flat),
        }
    }
}
