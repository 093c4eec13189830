//! Advice to the kernel about memory.

/// Lets the kernel use huge pages for `bytes` from `base` on. A refusal only costs speed.
///
/// # Safety
/// The range is part of one allocation of the caller.
pub(crate) unsafe fn ask_for_huge_pages(base: *mut u8, bytes: usize) {
    // SAFETY: the range is mapped memory of the caller's; the advice changes no content.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE) };
}
