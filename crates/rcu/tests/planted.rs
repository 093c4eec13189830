//! Reads freed memory on purpose, to prove that scripts/asan would report a use after free. The read is in a
//! restartable section (rseq), where the sanitizer is most likely to miss it. Runs only on request.

mod common;

use reprieve_rcu::capabilities;
use std::hint::black_box;
use std::ptr;

#[test]
#[ignore = "reads freed memory; scripts/asan runs it"]
fn use_after_free() {
    assert!(std::env::var_os("REPRIEVE_PLANT").is_some(), "only with REPRIEVE_PLANT=1");
    println!("{}", capabilities());
    let domain = common::domain();
    let object = Box::into_raw(Box::new([7u64; 4]));
    // SAFETY: the object came from a box, and is not linked anywhere.
    unsafe { domain.retire(object) };
    domain.barrier();
    // SAFETY: deliberately unsound: the object has been freed.
    let read = unsafe { domain.read(|| ptr::read_volatile(black_box(object))) };
    panic!("read {read:?} from freed memory, and the sanitizer did not report it");
}
