//! One layer: attention, then feed-forward blocks, as far as they are there.

mod attention;
mod blocks;
mod projections;

use super::{Code, Compiler};
use crate::program::{Full, Op, Part, RowSet, View};
use sparing_model::{Error, Layer, Norm};

/// Which rows a layer computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// All.
    All,
    /// Keys and values of all rows; queries, and everything after them, of the selected ones.
    Early,
    /// The selected rows, which have been selected before.
    Selected,
}

impl Reach {
    /// The rows of the result.
    fn rows(self) -> RowSet {
        if self == Reach::All { RowSet::All } else { RowSet::Selected }
    }
}

/// The full buffers of a layer that runs on a row set.
struct Buffers {
    x: View,
    narrow: Option<View>,
    context: View,
}

impl<'a> Compiler<'a> {
    /// Adds a layer. Only layers without attention reach [`Reach::Selected`] rows.
    pub(super) fn layer(&mut self, code: &mut Code, index: usize, layer: &'a Layer, reach: Reach) -> Result<(), Error> {
        if layer.bottleneck.is_some() && (layer.norm_first || layer.attention.window.is_some()) {
            return Err(Error::new(format!("layer {index}: a bottleneck with norms first or a window is unknown")));
        }
        let buffers = self.buffers(layer, reach.rows());
        let mut skip = false;
        if layer.attention.heads > 0 {
            skip = self.attention(code, index, layer, reach, &buffers)?;
        } else if layer.bottleneck.is_some() {
            // No projections, but the residual stream inside the layer.
            self.before(code, index, layer, &buffers, true, vec![], RowSet::Globals, None)?;
        }
        self.after(code, index, layer, &buffers, skip)
    }

    fn buffers(&self, layer: &Layer, rows: RowSet) -> Buffers {
        let (x, narrow, context) = match rows {
            RowSet::Selected => (Full::XSelected, Full::NarrowSelected, Full::ContextSelected),
            _ => (Full::X, Full::Narrow, Full::Context),
        };
        Buffers {
            x: View::full(x, self.architecture.hidden),
            narrow: layer.bottleneck.as_ref().map(|b| View::full(narrow, b.input.linear.outputs)),
            context: View::full(context, layer.attention.heads * layer.attention.head_width),
        }
    }

    /// A norm step.
    pub(super) fn norm(
        &mut self,
        code: &mut Code,
        (name, layer, part): (&'static str, Option<usize>, Part),
        norm: &Norm,
        input: View,
        out: View,
    ) -> Result<(), Error> {
        if input.width() != norm.width || out.width() != norm.width {
            let (found, width) = (input.width(), norm.width);
            return Err(Error::new(format!("{name}: a norm of width {width} cannot work on rows of {found}")));
        }
        let norm = self.collector.norm(norm)?;
        code.step(name, layer, part, Op::Norm { input, norm, out });
        Ok(())
    }
}
