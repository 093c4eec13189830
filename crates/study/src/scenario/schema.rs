//! The schema of a scenario, made from its types: names, defaults, ranges and doc comments of their fields. `keys`
//! lists them and `ranges` checks numbers against them, so both agree with the types.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Scenario;

static ROOT: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Scenario>().to_value()
});

/// The schema of one value of a scenario.
#[derive(Clone, Copy)]
pub(super) struct Schema(&'static Value);

impl Schema {
    /// Of a whole scenario.
    pub fn root() -> Schema {
        Schema(&ROOT)
    }

    pub fn get(self, keyword: &str) -> Option<&'static Value> {
        self.0.get(keyword)
    }

    /// The doc comment, in one line.
    pub fn description(self) -> String {
        self.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
    }

    /// The keys that a table has.
    pub fn properties(self) -> Option<impl Iterator<Item = (&'static str, Schema)>> {
        let properties = self.get("properties")?.as_object()?;
        Some(properties.iter().map(|(key, schema)| (key.as_str(), Schema(schema))))
    }

    pub fn property(self, key: &str) -> Option<Schema> {
        self.get("properties")?.get(key).map(Schema)
    }

    /// The keys that a table must have.
    pub fn required(self) -> Vec<&'static str> {
        let keys = self.get("required").and_then(Value::as_array).into_iter().flatten();
        keys.filter_map(Value::as_str).collect()
    }

    /// The schema of each entry of a table whose names the file chooses.
    pub fn named(self) -> Option<Schema> {
        self.get("additionalProperties").filter(|schema| schema.is_object()).map(Schema)
    }

    /// The items of a list.
    pub fn items(self) -> Option<Schema> {
        self.get("items").map(Schema)
    }

    /// The alternatives: kinds of a table, or names that a text may be.
    pub fn variants(self) -> impl Iterator<Item = Schema> {
        let variants =
            ["oneOf", "anyOf"].into_iter().filter_map(move |keyword| self.get(keyword)?.as_array());
        variants.flatten().map(Schema)
    }

    /// The only text that is allowed.
    pub fn constant(self) -> Option<&'static str> {
        self.get("const")?.as_str()
    }

    /// The key and its text that distinguish this kind of a table from others.
    pub fn tag(self) -> Option<(&'static str, &'static str)> {
        self.properties()?.find_map(|(key, schema)| Some((key, schema.constant()?)))
    }

    /// The least and the largest number.
    pub fn range(self) -> Option<(f64, f64)> {
        Some((self.get("minimum")?.as_f64()?, self.get("maximum")?.as_f64()?))
    }
}
