//! Keys that may be compared within a restartable section.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize};

/// A key that [`RcuMap::copied`](super::RcuMap::copied) can look up: plain data.
///
/// # Safety
/// `==` may be abandoned at any instruction and run again. So it must make no system calls, must not allocate, lock
/// or panic, and must write nothing that other code can see. A derived `PartialEq` of a type that consists of `Plain`
/// types meets this.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared within a restartable section",
    note = "use an integer, an address, or a tuple or an array of them; or read by `RcuMap::pin`",
    note = "for a struct of such types, `unsafe impl Plain`: see its documentation for what that promises"
)]
pub unsafe trait Plain: Copy + Eq {
    /// Two keys are equal exactly if their bytes are, and no byte is padding.
    #[doc(hidden)]
    const IS_WORD: bool = false;
}

macro_rules! plain {
    ($($t:ty)*) => {
        // SAFETY: comparing these compares bytes.
        $(unsafe impl Plain for $t {})*
    };
}
plain!(IpAddr SocketAddr SocketAddrV4 SocketAddrV6);

macro_rules! words {
    ($($t:ty)*) => {
        // SAFETY: these types consist of bytes without padding, and are compared as such.
        $(unsafe impl Plain for $t {
            const IS_WORD: bool = true;
        })*
    };
}
words!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize bool char);
words!(NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroU128 NonZeroUsize Ipv4Addr Ipv6Addr);

macro_rules! plain_tuples {
    ($(($($t:ident)*))*) => {
        // SAFETY: comparing a tuple compares its members, which are plain.
        $(unsafe impl<$($t: Plain),*> Plain for ($($t,)*) {})*
    };
}
plain_tuples!(()(A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F));

// SAFETY: comparing arrays compares members, or calls memcmp on the bytes.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: comparing options compares their kind and the value.
unsafe impl<T: Plain> Plain for Option<T> {}
