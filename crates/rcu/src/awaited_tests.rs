use super::*;
use crate::fence;

#[test]
fn a_token_is_served_with_its_own_call_and_none_before() {
    let true = crate::machine::probe().asymmetric else { return };
    let awaited = Awaited::default();
    assert_eq!(awaited.take_served(|_| false), None);
    let later = fence::tests::ticket_in(1_000_000);
    awaited.add(20, fence::tests::ticket_in(0));
    awaited.add(30, later);
    awaited.add(25, later);
    fence::barrier().unwrap();
    assert_eq!(awaited.take_served(|_| false), Some(20));
    assert_eq!(awaited.take_served(|_| false), None);
    // There are three calls now. That of the latest token serves all.
    awaited.add(27, fence::tests::ticket_in(2_000_000));
    awaited.add(40, fence::tests::ticket_in(3_000_000));
    fence::barrier().unwrap();
    assert_eq!(awaited.take_served(|token| token == 30), None);
    assert_eq!((awaited.take_served(|token| token == 40), awaited.any()), (Some(40), false));
}
