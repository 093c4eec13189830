//! KVM or emulation: decided by a guest that boots, never by a device node that opens.
//!
//! A nested `/dev/kvm` can open and still run a guest a thousand times too slowly, so under `auto` a probe
//! guest must reach user space within seconds. The answer holds until the host boots again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use reprieve_study::scenario::Accelerator;

use super::{Accel, Machine, MachineSpec};
use crate::link::Link;
use crate::{Host, Result, VmError};

/// A probe guest that is not in user space by then is no use. Under working KVM it takes about one second.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// The device.
const DEVICE: &str = "/dev/kvm";

/// An accelerator and the reason for it; both stand in every caption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub accel: Accel,
    /// Why.
    pub reason: String,
}

/// Decides. `spec` is a machine that would do for the probe; `remembered` is a file in which the probe's answer
/// is kept, with the boot of the host that it is of.
pub fn choose(wanted: Accelerator, spec: &MachineSpec, remembered: &Path, host: &Host) -> Result<Chosen> {
    let chosen = |accel, reason: &str| Ok(Chosen { accel, reason: reason.into() });
    match wanted {
        Accelerator::Tcg => chosen(Accel::Tcg, "asked for"),
        Accelerator::Kvm => match fs::File::open(DEVICE) {
            Ok(_) => chosen(Accel::Kvm, "asked for"),
            Err(error) => Err(VmError::Missing {
                what: format!("{DEVICE} ({error})"),
                way_out: "load the kvm module, join the group kvm, or set guest.accelerator=tcg".into(),
            }),
        },
        Accelerator::Auto => {
            if let Err(error) = fs::File::options().read(true).write(true).open(DEVICE) {
                return chosen(Accel::Tcg, &format!("{DEVICE}: {error}"));
            }
            let boot = format!("{} {}\n", host.proc_root.boot_id()?, spec.kernel.display());
            let known = fs::read_to_string(remembered).ok();
            let answer = match known.as_deref().and_then(|known| known.strip_prefix(&boot)) {
                Some(answer) => answer.to_string(),
                None => {
                    let answer = probe(spec, host)?;
                    // Only a saving of time: without it the next run probes again.
                    let _ = fs::write(remembered, format!("{boot}{answer}"));
                    answer
                }
            };
            let accel = if answer.starts_with("KVM works") { Accel::Kvm } else { Accel::Tcg };
            chosen(accel, &answer)
        }
    }
}

/// Boots a guest under KVM and says how it went.
fn probe(spec: &MachineSpec, host: &Host) -> Result<String> {
    let spec = MachineSpec { accel: Accel::Kvm, vcpus: 1, ..spec.clone() };
    let attempt = || -> Result<()> {
        let machine = Machine::start(&spec, host)?;
        let port = machine.port.try_clone().map_err(VmError::io("preparing the probe"))?;
        Link::new(port, host.interrupt.clone())?.wait_ready(PROBE_LIMIT).map(drop)
    };
    match attempt() {
        Ok(()) => Ok("KVM works: a probe guest reached user space".into()),
        Err(VmError::Guest { .. }) => Ok(format!(
            "{DEVICE} opens, but a probe guest did not reach user space within {} s",
            PROBE_LIMIT.as_secs()
        )),
        Err(other) => Err(other),
    }
}
