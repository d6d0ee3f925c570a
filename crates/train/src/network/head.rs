//! From the last hidden state to the answers.

use super::pass::Pass;
use burn::tensor::Tensor;
use sparing_model::{Error, HeadKind, HeadRows};

impl Pass<'_> {
    /// `[batch, length, hidden]` to `[batch, 1 or length, outputs]`.
    pub(super) fn head(&self, last: Tensor<3>) -> Result<Tensor<3>, Error> {
        let [count, length, width] = last.dims();
        let (rows, all) = match self.architecture.head.rows {
            HeadRows::All => (last.reshape([count * length, width]), true),
            HeadRows::First => (last.slice([0..count, 0..1]).reshape([count, width]), false),
            HeadRows::Last => {
                let at = self.batch.ints(|host| {
                    let last = |(i, ids): (usize, &Vec<u32>)| (i * host.length + ids.len() - 1) as i32;
                    host.ids.iter().enumerate().map(last).collect()
                });
                (last.reshape([count * length, width]).select(0, at), false)
            }
            HeadRows::Mean => {
                let sum = (last * self.tokens()).sum_dim(1).reshape([count, width]);
                let shares = self.batch.floats(|host| host.ids.iter().map(|ids| 1.0 / ids.len() as f32).collect());
                (sum * shares.reshape([count, 1]), false)
            }
            HeadRows::Max => {
                let padding = self.batch.mask.clone().bool_not().reshape([count, length, 1]);
                let seen = last.mask_fill(padding.expand([count, length, width]), f32::MIN);
                (seen.max_dim(1).reshape([count, width]), false)
            }
        };
        let out = self.stages(rows, all)?;
        let [rows, outputs] = out.dims();
        Ok(out.reshape([count, rows / count, outputs]))
    }

    /// `[batch, length, 1]`, 1 where there is a token.
    fn tokens(&self) -> Tensor<3> {
        self.batch.mask.clone().float().reshape([self.batch.count(), self.batch.length, 1])
    }

    /// The stages, row by row. `all`: the rows are all tokens, padding among them.
    pub(super) fn stages(&self, mut rows: Tensor<2>, all: bool) -> Result<Tensor<2>, Error> {
        let head = &self.architecture.head;
        let last = head.stages.iter().rposition(|stage| stage.linear.is_some());
        // As published: classifiers see dropout, language models and answers do not.
        let drops = matches!(
            head.kind,
            HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress | HeadKind::TokenClassify
        );
        for (number, stage) in head.stages.iter().enumerate() {
            if let Some(linear) = &stage.linear {
                if drops && Some(number) == last {
                    rows = self.dropout(rows);
                }
                let input = self.input(linear, rows, all);
                rows = self.wide(self.product(linear, input)?);
            }
            rows = self.activate(stage.activation, rows);
            if let Some(norm) = &stage.norm {
                rows = self.norm(norm, rows)?;
            }
        }
        if matches!(head.kind, HeadKind::Embed { normalise: true }) {
            let lengths = rows.clone().square().sum_dim(1).sqrt().clamp_min(1e-12);
            rows = rows / lengths;
        }
        Ok(rows)
    }
}
