//! The rise of memory while one vCPU is kept from running, and that it is the delayed grace period's: where a vCPU that
//! does not run counts as quiescent, nothing rises. (Other grace periods are shorter there, too: the control shows what
//! the pause adds where it delays none.)

mod support;

use reprieve_sim::ground::{self, Tapes};
use reprieve_study::{metric, overrides};

#[test]
fn a_clone_spike_is_the_delayed_grace_period_s() {
    let text = include_str!("../../../scenarios/rcu-clone.toml");
    let once = ["run.repeat=1".to_string()];
    let scenario = overrides::read(text, None, &once).unwrap();
    let finished = ground::run(scenario, &Tapes::new(), 2, &|| false, &mut support::Silence);
    assert!(finished.error.is_none());
    let peak_mib = |condition: &str| {
        let run = finished.observations.iter().find(|run| run.condition == condition).unwrap();
        run.metrics[metric::FOOTPRINT_PEAK] as u64 >> 20
    };
    let (calm, paused, control) =
        (peak_mib("baseline"), peak_mib("paused-3-s"), peak_mib("paused-3-s-quiescent"));
    assert!(paused > calm + 500, "{calm}, {paused}");
    assert!(control < calm + 50, "{calm}, {control}");
    let run = finished.observations.iter().find(|run| run.condition == "paused-3-s").unwrap();
    assert!(run.metrics[metric::GP_MAX] > 2.5e9);
}
