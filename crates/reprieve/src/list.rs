//! `reprieve list`.

use reprieve_study::Ground;

use crate::catalog;

/// Room for a name.
const NAME: usize = 19;

/// The scenarios with their titles, the grounds that can run them, and what they do on their own ground.
pub fn render() -> String {
    let mut text = String::new();
    for (name, _) in catalog::BUILT_IN {
        let scenario = catalog::read(name, None, &[]).expect("built-in scenarios are tested");
        let grounds: Vec<String> = catalog::grounds(name, &scenario).iter().map(Ground::to_string).collect();
        text.push_str(&format!("{name:<NAME$} {} [{}]\n", scenario.title, grounds.join(", ")));
        for (case, settings) in &scenario.cases {
            text.push_str(&format!("{:NAME$}   case {case}: {}\n", "", settings.label));
        }
        for (condition, settings) in &scenario.conditions {
            text.push_str(&format!("{:NAME$}   {condition}: {}\n", "", settings.label));
        }
        for (sweep, settings) in &scenario.sweeps {
            text.push_str(&format!("{:NAME$}   sweep {sweep}: {}\n", "", settings.label));
        }
    }
    text
}
