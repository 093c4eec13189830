//! `reprieve list`.

use crate::catalog;

/// The scenarios with their titles and conditions.
pub fn render() -> String {
    let mut text = String::new();
    for (name, _) in catalog::BUILT_IN {
        let scenario = catalog::read(name, &[]).expect("built-in scenarios are tested");
        text.push_str(&format!("{name:<14} {}\n", scenario.title));
        for (condition, settings) in &scenario.conditions {
            text.push_str(&format!("{:14}   {condition}: {}\n", "", settings.label));
        }
    }
    text
}
