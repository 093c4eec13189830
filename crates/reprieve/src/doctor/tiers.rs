//! What `reprieve explain` and all that watches a VM from inside may see here, by tier.

use reprieve_linux::observe::{self, Part};
use reprieve_linux::proc::ProcRoot;
use reprieve_policy::sample::Tier;

use super::{Finding, State};

const TIERS: [(Tier, &str); 3] =
    [(Tier::T0, "explain tier T0"), (Tier::T1, "explain tier T1"), (Tier::T2, "explain tier T2")];

/// A finding for each tier.
pub fn look(root: &ProcRoot) -> Vec<Finding> {
    let parts = observe::parts(root);
    TIERS.iter().map(|(tier, what)| finding(what, parts.iter().filter(|part| part.tier == *tier))).collect()
}

fn finding<'a>(what: &'static str, parts: impl Iterator<Item = &'a Part> + Clone) -> Finding {
    let open: Vec<&str> = parts.clone().filter(|part| part.closed.is_none()).map(|part| part.what).collect();
    let is_closed = open.is_empty();
    let open = if is_closed { "closed".into() } else { format!("open: {}", open.join(", ")) };
    let closed: Vec<String> =
        parts.filter_map(|part| Some(format!("{}: {}", part.what, part.closed.as_ref()?))).collect();
    let state = if closed.is_empty() { State::Good } else { State::Less };
    let says =
        if closed.is_empty() { open } else { format!("{open}; without {}", closed.join("; without ")) };
    Finding { what, state, says }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_says_what_is_open_and_why_the_rest_is_not() {
        let part =
            |what, closed: Option<&str>| Part { tier: Tier::T1, what, closed: closed.map(str::to_string) };
        let both = [part("slabs", None), part("the log", Some("denied; run as root"))];
        let found = finding("x", both.iter());
        assert_eq!(found.says, "open: slabs; without the log: denied; run as root");
        assert!(matches!(found.state, State::Less));
        assert!(matches!(finding("x", both[..1].iter()).state, State::Good));
        assert_eq!(finding("x", both[1..].iter()).says, "closed; without the log: denied; run as root");
    }
}
