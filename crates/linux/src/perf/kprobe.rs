//! Events at which a function of the kernel begins or returns.
//!
//! Such an event needs CONFIG_KPROBE_EVENTS and CAP_PERFMON. It exists as long as its descriptor, so nothing is left behind
//! by a process that is killed. Source: perf_event_open(2); Documentation/trace/kprobetrace.rst.

use std::ffi::CStr;
use std::path::Path;

use perf_event_open_sys::bindings as perf;

use super::event::attributes;
use crate::{Error, Result};

/// The register that holds a function's first or second argument, or its result, as perf numbers them (asm/perf_regs.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    /// The first argument.
    First,
    /// The second argument.
    Second,
    /// The result.
    Result,
}

impl Register {
    #[cfg(target_arch = "x86_64")]
    fn number(self) -> u32 {
        match self {
            Register::First => perf::PERF_REG_X86_DI,
            Register::Second => perf::PERF_REG_X86_SI,
            Register::Result => perf::PERF_REG_X86_AX,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn number(self) -> u32 {
        match self {
            Register::First | Register::Result => perf::PERF_REG_ARM64_X0,
            Register::Second => perf::PERF_REG_ARM64_X1,
        }
    }
}

/// The kernel's events at functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kprobes {
    kind: u32,
    /// The bit of `config` that asks for the function's return.
    return_bit: u32,
}

impl Kprobes {
    /// Those of the kernel with this `/sys`.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn find(sys: &Path) -> Result<Kprobes> {
        let folder = sys.join("bus/event_source/devices/kprobe");
        let path = folder.join("type");
        let text = read(&path)?;
        let kind = text.trim().parse().map_err(|_| Error::malformed(&path, "a number", &text))?;
        let path = folder.join("format/retprobe");
        let text = read(&path)?;
        let bit = text.trim().strip_prefix("config:").and_then(|bit| bit.parse::<u32>().ok());
        let return_bit =
            bit.filter(|bit| *bit < 64).ok_or_else(|| Error::malformed(path, "config:BIT", &text))?;
        Ok(Kprobes { kind, return_bit })
    }

    /// An event at the begin of a function.
    pub fn begin(self, function: &'static CStr) -> perf::perf_event_attr {
        let mut attributes = attributes();
        attributes.type_ = self.kind;
        attributes.__bindgen_anon_3.kprobe_func = function.as_ptr() as u64;
        attributes
    }

    /// An event at the return of a function.
    pub fn end(self, function: &'static CStr) -> perf::perf_event_attr {
        let mut attributes = self.begin(function);
        attributes.config = 1 << self.return_bit;
        attributes
    }
}

/// Lets each record of an event hold this register, after its ABI, which is `PERF_SAMPLE_REGS_ABI_NONE` in a record without.
pub(crate) fn with_register(
    mut attributes: perf::perf_event_attr,
    register: Register,
) -> perf::perf_event_attr {
    attributes.sample_type |= u64::from(perf::PERF_SAMPLE_REGS_INTR);
    attributes.sample_regs_intr = 1 << register.number();
    attributes
}

fn read(path: &Path) -> Result<String> {
    let way_out = "use a kernel with CONFIG_KPROBE_EVENTS";
    std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::Missing { what: "perf events at functions of the kernel", path: path.into(), way_out }
        }
        _ => Error::io("read", path, e, "run as root"),
    })
}
