//! What this machine offers to readers, and what of it is used. For problem reports and for ports to new machines.

use reprieve_rcu::capabilities;

#[cfg(target_os = "linux")]
mod offered {
    use std::ffi::CStr;

    // membarrier(2) and the kernel's uapi header.
    const QUERY: i32 = 0;
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
    const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

    /// A number that the C library publishes, as glibc documents these symbols.
    fn published<T: Copy>(name: &CStr) -> Option<T> {
        // SAFETY: the name is a C string; where the symbol exists it is a constant of type `T`.
        unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<T>();
            (!at.is_null()).then(|| *at)
        }
    }

    fn membarrier(command: i32) -> Result<i64, std::io::Error> {
        // SAFETY: membarrier takes integers and touches no memory of the caller.
        let r = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        if r < 0 { Err(std::io::Error::last_os_error()) } else { Ok(r) }
    }

    fn works(register: i32, command: i32) -> String {
        match membarrier(register).and_then(|_| membarrier(command)) {
            Ok(_) => "works".to_owned(),
            Err(e) => format!("fails: {e}"),
        }
    }

    pub fn print() {
        println!("__rseq_offset: {:?}", published::<isize>(c"__rseq_offset"));
        println!("__rseq_size: {:?}", published::<u32>(c"__rseq_size"));
        match membarrier(QUERY) {
            Ok(commands) => println!("membarrier commands: {commands:#x}"),
            Err(e) => println!("membarrier commands: none, {e}"),
        }
        println!("membarrier: {}", works(REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED));
        println!("membarrier with rseq: {}", works(REGISTER_PRIVATE_EXPEDITED_RSEQ, PRIVATE_EXPEDITED_RSEQ));
    }
}

fn main() {
    println!("{} {}, {} bits", std::env::consts::OS, std::env::consts::ARCH, usize::BITS);
    #[cfg(target_os = "linux")]
    offered::print();
    println!("{}", capabilities());
}
