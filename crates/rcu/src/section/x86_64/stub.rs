//! The abort stub: the one page that lies outside every restartable section.
//!
//! The kernel sends an interrupted section to its abort address, which must lie outside the section's range and
//! follow a signature. The range must cover everything that a section may call, which is the whole address space, so
//! the stub lies below everything else. Its page is chosen at random and contains no address: a page at a fixed place
//! with a code pointer in it would tell an attacker where the program lies.
//!
//! The page is never writable and executable at the same time. If a policy forbids executable anonymous memory, the
//! page is mapped from a memory file or an unlinked file.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

/// Size of the page. x86-64 has no other base size.
const PAGE_BYTES: usize = 4096;
/// What the kernel expects in the four bytes before an abort address. glibc registers rseq with this signature (RSEQ_SIG).
pub(super) const SIGNATURE: u32 = 0x5305_3053;
/// Where the abort address lies in the page.
#[cfg(test)]
const ABORT_OFFSET: usize = 4;
/// The lowest page to try. This is the usual vm.mmap_min_addr, below which nothing is mapped so that null pointers fault.
const LOWEST: usize = 0x1_0000;
/// The highest. From here on the kernel puts mappings that must lie below 2 GiB (MAP_32BIT), which just-in-time
/// compilers ask for.
const HIGHEST: usize = 0x4000_0000;
/// How many pages are tried at random before all are tried in order. Most pages are free.
const PICKS: usize = 64;

/// Maps a page with `abort_code` at the abort address. Returns the page's address, or none.
pub(crate) fn map(abort_code: &[u8]) -> Option<usize> {
    let code = [&SIGNATURE.to_le_bytes(), abort_code].concat();
    let (lowest, highest) = (lowest_page(), own_text().min(map as *const () as usize).min(HIGHEST));
    let pages = highest.saturating_sub(lowest) / PAGE_BYTES;
    let picked = (0..PICKS.min(pages)).map(|_| random() as usize % pages);
    let page = picked.chain(0..pages).map(|n| lowest + n * PAGE_BYTES).find(|&page| is_free(page))?;
    let ways = [anonymous as fn(usize, &[u8]) -> Option<()>, memory_file, unlinked_file];
    ways.iter().any(|put| put(page, &code).is_some()).then_some(page)
}

/// 64 random bits; 0 if the kernel has none yet.
fn random() -> u64 {
    let mut bits = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes.
    unsafe { libc::syscall(libc::SYS_getrandom, bits.as_mut_ptr(), bits.len(), libc::GRND_NONBLOCK) };
    u64::from_le_bytes(bits)
}

/// The first address beyond user space (TASK_SIZE). The last page of the lower half is not part of user space. On the
/// page before it, the kernel runs instructions out of line for uprobes, so that page must be in every section's
/// range. With page tables of five levels, the lower half is 512 times as large. Whether a mapping beyond that of
/// four levels is possible shows which there are.
pub(crate) fn user_space_end() -> u64 {
    const FOUR_LEVELS: usize = 1 << 47;
    const FIVE_LEVELS: usize = 1 << 56;
    let half = if is_free(FOUR_LEVELS) { FIVE_LEVELS } else { FOUR_LEVELS };
    (half - PAGE_BYTES) as u64
}

fn lowest_page() -> usize {
    let limit = fs::read_to_string("/proc/sys/vm/mmap_min_addr").ok();
    let limit = limit.and_then(|s| s.trim().parse().ok()).unwrap_or(LOWEST);
    LOWEST.max(limit).next_multiple_of(PAGE_BYTES)
}

/// An address in the program's first segment, which holds its headers.
fn own_text() -> usize {
    // SAFETY: getauxval reads the auxiliary vector. It returns 0 if the entry is missing.
    match unsafe { libc::getauxval(libc::AT_PHDR) } as usize {
        0 => HIGHEST,
        at => at & !(PAGE_BYTES - 1),
    }
}

fn place(page: usize, protection: i32, flags: i32, fd: i32) -> Option<*mut u8> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    let wanted = page as *mut libc::c_void;
    // SAFETY: NOREPLACE leaves existing mappings alone. Kernels that do not know it take the address as a hint.
    let got = unsafe { libc::mmap(wanted, PAGE_BYTES, protection, flags, fd, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got != wanted {
        // SAFETY: this mapping was just made, at another address than asked for, and nobody knows of it.
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

    /// Signature, then `mov eax, 42; ret`.
    const CODE: [u8; 10] = [0x53, 0x30, 0x05, 0x53, 0xb8, 42, 0, 0, 0, 0xc3];

    /// Each way of mapping the page must work where this test runs.
    #[test]
    fn every_way_makes_a_page_that_runs() {
        // Pages above those that `map` takes, so that the tests of one process do not collide.
        let pages = (0x5000_0000..).step_by(PAGE_BYTES).filter(|&p| is_free(p));
        let ways = [anonymous as fn(usize, &[u8]) -> Option<()>, memory_file, unlinked_file];
        for (put, page) in ways.into_iter().zip(pages) {
            put(page, &CODE).expect("the page can be mapped");
            // SAFETY: the page holds the signature and, after it, a function of this type.
            unsafe {
                assert_eq!(*(page as *const u32), SIGNATURE);
                let call: extern "C" fn() -> u64 = std::mem::transmute(page + ABORT_OFFSET);
                assert_eq!(call(), 42);
                libc::munmap(page as *mut libc::c_void, PAGE_BYTES);
            }
        }
    }

    #[test]
    fn the_page_holds_no_address_and_is_another_each_time() {
        let code = super::super::wide::abort_code();
        let pages: Vec<usize> = (0..8).map(|_| map(&code).expect("a page")).collect();
        for &page in &pages {
            // SAFETY: mapped above, readable, and not unmapped before the loop's end.
            let words: Vec<u64> = (0..PAGE_BYTES - 7)
                .map(|at| unsafe { ((page + at) as *const u64).read_unaligned() })
                .collect();
            let text = map as *const () as u64;
            assert!(words.iter().all(|w| w.abs_diff(text) > 1 << 32), "an address of this program's text");
            // SAFETY: as above.
            unsafe { libc::munmap(page as *mut libc::c_void, PAGE_BYTES) };
        }
        assert!(pages.iter().any(|&page| page != pages[0]));
    }

    #[test]
    fn a_taken_page_is_left_alone() {
        let taken = (0x6000_0000..).step_by(PAGE_BYTES).find(|&p| is_free(p)).expect("a free page");
        let at = place(taken, libc::PROT_READ, libc::MAP_ANONYMOUS, -1).expect("mapped");
        assert!(!is_free(taken));
        assert!(anonymous(taken, &CODE).is_none());
        // SAFETY: mapped above.
        unsafe { libc::munmap(at.cast(), PAGE_BYTES) };
    }
}
