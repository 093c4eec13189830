//! What restartable sections need of the machine and the C library.

use super::{narrow, rseq, stub, wide};
use crate::platform::{membarrier, own_object};
use crate::section::Obstacle;

/// Prepares them, or tells why there are none. `in_any_case`: see `rseq::field_offset`.
pub(crate) fn prepare(in_any_case: bool) -> Result<(), Obstacle> {
    let field = rseq::field_offset(in_any_case).ok_or(Obstacle::NoRseq)?;
    if !membarrier::has_rseq() {
        return Err(Obstacle::NoMembarrier);
    }
    // They put nothing back, neither registers nor a stack, and need no stub.
    narrow::enable(field, own_object());
    if shadow_stack() {
        return Err(Obstacle::ShadowStack);
    }
    let page = stub::map(&wide::abort_code()).ok_or(Obstacle::NoStubPage)?;
    wide::enable(page, stub::user_space_end(), field);
    Ok(())
}

/// Whether user shadow stacks are on (`ARCH_SHSTK_STATUS`, Linux 6.6). glibc switches them on before `main`.
fn shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: libc::c_int = 0x5005;
    const ARCH_SHSTK_SHSTK: u64 = 1;
    let mut features = 0u64;
    // SAFETY: the kernel writes eight bytes to `features`, or fails where it does not know the request.
    let r = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    r == 0 && features & ARCH_SHSTK_SHSTK != 0
}
