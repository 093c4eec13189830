//! Advice to the kernel about memory.

/// Lets the kernel back `bytes` from `base` on by huge pages. A refusal costs speed only.
///
/// # Safety
/// The range is part of one allocation of the caller's.
pub(crate) unsafe fn ask_for_huge_pages(base: *mut u8, bytes: usize) {
    // SAFETY: the range is mapped memory of the caller's; the advice changes no content.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE) };
}
