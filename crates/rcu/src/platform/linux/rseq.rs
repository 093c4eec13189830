//! The thread's rseq area, as registered by the C library. Source: rseq(2), glibc manual "Restartable
//! Sequences".
//!
//! glibc publishes where the area lies relative to the thread pointer. The symbols are looked up at run time,
//! so that the program also links and runs where they do not exist.

/// Offset from the thread pointer of the field `rseq_cs`; none where rseq is not registered.
pub(crate) fn field_offset() -> Option<isize> {
    /// `struct rseq`: cpu_id_start at 0, cpu_id at 4, rseq_cs at 8.
    const RSEQ_CS: isize = 8;
    let size: u32 = symbol(c"__rseq_size")?;
    let offset: isize = symbol(c"__rseq_offset")?;
    (size > 0).then_some(offset + RSEQ_CS)
}

fn symbol<T: Copy>(name: &std::ffi::CStr) -> Option<T> {
    // SAFETY: the name is a C string. glibc documents these two symbols as constant objects of the types
    // asked for.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<T>();
        (!at.is_null()).then(|| *at)
    }
}
