//! Whether two models mean the same by their labels.

use crate::gold::{generic, plain};

/// How the labels of one model belong to another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pairing {
    /// By name: the other's number of each.
    Names(Vec<usize>),
    /// In order: one of the two has numbers for names.
    Order,
    /// In order too, though both have names, and others.
    Strangers,
}

impl Pairing {
    /// Pairs as many labels of one model with another's.
    pub fn new(ours: &[String], theirs: &[String]) -> Pairing {
        let names: Vec<String> = theirs.iter().map(|label| plain(label)).collect();
        let place = |label: &String| names.iter().position(|name| *name == plain(label));
        let is_generic = |labels: &[String]| labels.iter().enumerate().all(|(number, label)| generic(label, number));
        match ours.iter().map(place).collect() {
            Some(numbers) => Pairing::Names(numbers),
            None if is_generic(ours) || is_generic(theirs) => Pairing::Order,
            None => Pairing::Strangers,
        }
    }

    /// The other's number of a label.
    pub fn of(&self, label: usize) -> usize {
        match self {
            Pairing::Names(numbers) => numbers.get(label).copied().unwrap_or(label),
            _ => label,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_belong_together_by_name_else_in_order() {
        let pair =
            |ours: [&str; 2], theirs: [&str; 2]| Pairing::new(&ours.map(String::from), &theirs.map(String::from));
        let turned = pair(["not_equivalent", "equivalent"], ["Equivalent", "not-equivalent"]);
        assert_eq!(turned, Pairing::Names(vec![1, 0]));
        assert_eq!([turned.of(0), turned.of(1)], [1, 0]);
        assert_eq!(pair(["LABEL_0", "LABEL_1"], ["bad", "good"]), Pairing::Order);
        assert_eq!(pair(["bad", "good"], ["0", "1"]), Pairing::Order);
        let strangers = pair(["bad", "good"], ["spam", "good"]);
        assert_eq!((&strangers, strangers.of(1)), (&Pairing::Strangers, 1));
    }
}
