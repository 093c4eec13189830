//! The abort stub: the one page that lies outside every restartable section.
//!
//! The kernel sends an interrupted section to its abort address, which must lie outside the section's range
//! and follow a signature. The range is to cover everything a section may call, that is the whole address
//! space; so the stub is put below everything else, on the lowest page that can be mapped, and jumps to the
//! handler in the text.
//!
//! The page is never writable and executable at a time. Where a policy forbids executable anonymous memory,
//! the page is mapped from a memory file or an unlinked file.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

/// Bytes of the page. x86-64 has no other base size.
const PAGE_BYTES: usize = 4096;
/// What the kernel looks for in the four bytes before an abort address; glibc registers rseq with it
/// (RSEQ_SIG).
const SIGNATURE: u32 = 0x5305_3053;
/// Where the abort address lies in the page.
#[cfg(test)]
const ABORT_OFFSET: usize = 4;
/// Lowest page tried: the usual vm.mmap_min_addr, kept free so that null pointers fault.
const LOWEST: usize = 0x1_0000;
/// Below the text of a program that is not position-independent.
const HIGHEST: usize = 0x40_0000;

/// Maps the stub that jumps to `handler`; its address, or none.
pub(crate) fn map(handler: usize) -> Option<usize> {
    let code = code(handler);
    let files = [anonymous as fn(usize, &[u8]) -> Option<()>, memory_file, unlinked_file];
    let text = own_text().min(handler).min(HIGHEST);
    for page in (lowest_page()..text.saturating_sub(PAGE_BYTES)).step_by(PAGE_BYTES) {
        if !is_free(page) {
            continue;
        }
        return files.iter().any(|put| put(page, &code).is_some()).then_some(page);
    }
    None
}

/// Signature, then `movabs rax, handler; jmp rax`. The abort handler needs no register of the section.
fn code(handler: usize) -> [u8; 16] {
    let mut code = [0u8; 16];
    code[..4].copy_from_slice(&SIGNATURE.to_le_bytes());
    code[4..6].copy_from_slice(&[0x48, 0xb8]);
    code[6..14].copy_from_slice(&(handler as u64).to_le_bytes());
    code[14..].copy_from_slice(&[0xff, 0xe0]);
    code
}

fn lowest_page() -> usize {
    let limit = fs::read_to_string("/proc/sys/vm/mmap_min_addr").ok();
    let limit = limit.and_then(|s| s.trim().parse().ok()).unwrap_or(LOWEST);
    LOWEST.max(limit).next_multiple_of(PAGE_BYTES)
}

/// An address in the program's first segment: its headers.
fn own_text() -> usize {
    // SAFETY: getauxval reads the auxiliary vector; 0 when the entry is missing.
    match unsafe { libc::getauxval(libc::AT_PHDR) } as usize {
        0 => HIGHEST,
        at => at & !(PAGE_BYTES - 1),
    }
}

fn place(page: usize, protection: i32, flags: i32, fd: i32) -> Option<*mut u8> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    let wanted = page as *mut libc::c_void;
    // SAFETY: NOREPLACE leaves existing mappings alone; kernels that do not know it take the address as a
    // hint.
    let got = unsafe { libc::mmap(wanted, PAGE_BYTES, protection, flags, fd, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got != wanted {
        // SAFETY: the mapping was made just now, elsewhere than asked, and nobody knows of it.
        unsafe { libc::munmap(got, PAGE_BYTES) };
        return None;
    }
    Some(got.cast())
}

fn is_free(page: usize) -> bool {
    let Some(at) = place(page, libc::PROT_NONE, libc::MAP_ANONYMOUS, -1) else { return false };
    // SAFETY: mapped by the line above, and nobody knows of it.
    unsafe { libc::munmap(at.cast(), PAGE_BYTES) == 0 }
}

fn anonymous(page: usize, code: &[u8]) -> Option<()> {
    let at = place(page, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: the page is mapped for writing, ours alone, and longer than the code.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
    // SAFETY: the page is ours. Writable until here, executable from here on.
    let fixed = unsafe { libc::mprotect(at.cast(), PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC) } == 0;
    if !fixed {
        // SAFETY: ours, and not handed out.
        unsafe { libc::munmap(at.cast(), PAGE_BYTES) };
    }
    fixed.then_some(())
}

fn memory_file(page: usize, code: &[u8]) -> Option<()> {
    // SAFETY: the name is a C string; the descriptor, where there is one, is new and ours.
    let fd = unsafe { libc::memfd_create(c"reprieve-rcu".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is open and owned by nobody else.
    from_file(page, code, unsafe { File::from_raw_fd(fd) })
}

fn unlinked_file(page: usize, code: &[u8]) -> Option<()> {
    ["/dev/shm", "/tmp"].iter().find_map(|dir| {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o700).open(dir).ok()?;
        from_file(page, code, file)
    })
}

fn from_file(page: usize, code: &[u8], mut file: File) -> Option<()> {
    let mut whole = [0u8; PAGE_BYTES];
    whole[..code.len()].copy_from_slice(code);
    file.write_all(&whole).ok()?;
    place(page, libc::PROT_READ | libc::PROT_EXEC, 0, file.as_raw_fd()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn answer() -> u64 {
        42
    }

    /// Each way of mapping the page must work where this test runs: the stub then jumps to its handler.
    #[test]
    fn every_way_makes_a_stub_that_jumps() {
        let code = code(answer as *const () as usize);
        // Pages above those that a probe takes, so that the tests of one process do not collide.
        let pages = (0x20_0000..).step_by(PAGE_BYTES).filter(|&p| is_free(p));
        let ways = [anonymous as fn(usize, &[u8]) -> Option<()>, memory_file, unlinked_file];
        for (put, page) in ways.into_iter().zip(pages) {
            put(page, &code).expect("the page can be mapped");
            // SAFETY: the page holds the signature and, after it, a jump to `answer`, which has this type.
            unsafe {
                assert_eq!(*(page as *const u32), SIGNATURE);
                let call: extern "C" fn() -> u64 = std::mem::transmute(page + ABORT_OFFSET);
                assert_eq!(call(), 42);
                libc::munmap(page as *mut libc::c_void, PAGE_BYTES);
            }
        }
    }

    #[test]
    fn a_taken_page_is_left_alone() {
        let taken = (0x30_0000..).step_by(PAGE_BYTES).find(|&p| is_free(p)).expect("a free page");
        let at = place(taken, libc::PROT_READ, libc::MAP_ANONYMOUS, -1).expect("mapped");
        assert!(!is_free(taken));
        assert!(anonymous(taken, &code(1)).is_none());
        // SAFETY: mapped above.
        unsafe { libc::munmap(at.cast(), PAGE_BYTES) };
    }
}
