//! What a run saw that cannot be, for the notes beside its figures.

use crate::introspect::Impossible;

/// Counts it, and keeps the first.
#[derive(Debug, Default)]
pub struct ImpossibleLooks {
    looks: u64,
    first: Option<Impossible>,
}

impl ImpossibleLooks {
    /// Takes what a look found.
    pub fn see(&mut self, impossible: Option<Impossible>) {
        self.looks += u64::from(impossible.is_some());
        self.first = self.first.or(impossible);
    }

    /// For people, if there is anything to doubt.
    pub fn note(&self) -> Option<String> {
        let first = self.first?;
        Some(format!(
            "do not trust these figures: {} looks met some that cannot be, at first {first}; the guest's kernel is damaged or \
             hostile",
            self.looks
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_named_and_all_are_counted() {
        let mut looks = ImpossibleLooks::default();
        looks.see(None);
        assert_eq!(looks.note(), None);
        looks.see(Impossible::unless("a", 7, 0, 1));
        looks.see(Impossible::unless("b", 8, 0, 1));
        let note = looks.note().unwrap();
        assert!(note.contains("2 looks") && note.contains("a is 7, and can be 1 at most"), "{note}");
    }
}
