//! Executors whose answers may be no numbers: nothing is scored by those, but who asked may want to know why.

use sparing_model::{Batch, Error, Executor, Outputs};
use std::sync::atomic::{AtomicBool, Ordering};

/// An executor that remembers whether something came out that is not a number.
pub struct Watched<'a> {
    executor: &'a dyn Executor,
    broken: AtomicBool,
}

impl<'a> Watched<'a> {
    /// Nothing has come out yet.
    pub fn new(executor: &'a dyn Executor) -> Self {
        Watched { executor, broken: AtomicBool::new(false) }
    }

    /// Whether something has come out that is not a number.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

impl Executor for Watched<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let outputs = self.executor.run(batch)?;
        if outputs.sequences.iter().flatten().any(|x| x.is_nan()) {
            self.broken.store(true, Ordering::Relaxed);
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_model::Sequence;

    /// Answers with a text's first token, which may be no number.
    struct Echo;

    impl Executor for Echo {
        fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
            let number = |id: u32| if id == 50 { f32::NAN } else { id as f32 };
            let sequences = batch.sequences.iter().map(|sequence| vec![number(sequence.ids[0])]).collect();
            Ok(Outputs { sequences, width: 1 })
        }
    }

    #[test]
    fn what_is_not_a_number_is_noticed() {
        let watched = Watched::new(&Echo);
        let ask = |ids: &[u32]| {
            let sequences = ids.iter().map(|id| Sequence { ids: vec![*id], ..Sequence::default() }).collect();
            watched.run(&Batch { sequences, ..Batch::default() }).unwrap();
            watched.is_broken()
        };
        assert!(!ask(&[2, 90, 3]));
        assert!(ask(&[2, 50, 3]));
        assert!(ask(&[2]), "it is not forgotten");
    }
}
