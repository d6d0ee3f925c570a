//! Where everything in a packed batch is: rows of sequences, rows the head reads, rows that attend globally.

use crate::program::RowSet;
use sparing_kernels::attention::Span;
use sparing_model::{GlobalTokens, Sequence};
use std::ops::Range;

/// Which rows of a sequence are selected for the head.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Select<'a> {
    Nothing,
    First,
    Last,
    Rows(&'a [usize]),
}

/// Spans of one row set, and the sequence each belongs to.
#[derive(Default)]
pub(crate) struct Spans {
    pub(crate) spans: Vec<Span>,
    pub(crate) sequences: Vec<usize>,
}

impl Spans {
    fn clear(&mut self) {
        self.spans.clear();
        self.sequences.clear();
    }

    /// Sequences without queries have no span.
    fn push(&mut self, sequence: usize, span: Span) {
        if !span.queries.is_empty() {
            self.spans.push(span);
            self.sequences.push(sequence);
        }
    }
}

/// A row that is merged into another one, which stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Merger {
    pub(crate) from: usize,
    pub(crate) into: usize,
    /// How much of the result is the merged row, by how many tokens the two stand for.
    pub(crate) share: f32,
}

/// The layout of one packed batch; its vectors are reused.
#[derive(Default)]
pub(crate) struct Layout {
    /// Token ids of all rows.
    pub(crate) ids: Vec<u32>,
    /// Token types of all rows.
    pub(crate) types: Vec<u32>,
    /// Positions of all rows in their sequences.
    pub(crate) positions: Vec<u32>,
    /// Each sequence's rows.
    pub(crate) sequences: Vec<Range<usize>>,
    /// How many tokens each sequence had at first.
    pub(crate) inputs: Vec<usize>,
    /// Whether a sequence has tokens of more than one type.
    pub(crate) mixed_types: Vec<bool>,
    /// Positions that spans refer to; begins with `0, 1, 2 ..` up to the longest sequence.
    pub(crate) indices: Vec<usize>,
    /// Rows the head reads.
    pub(crate) selected: Vec<usize>,
    /// Each sequence's part of `selected`.
    pub(crate) selected_of: Vec<Range<usize>>,
    /// Rows that attend globally.
    globals: Vec<usize>,
    /// Rows that attend globally and are selected.
    selected_globals: Vec<usize>,
    /// Where those are among the selected rows.
    selected_globals_at: Vec<usize>,
    /// Rows that stay when tokens are dropped, in order.
    pub(crate) staying: Vec<usize>,
    /// Rows that are merged into others instead of only leaving.
    pub(crate) merging: Vec<Merger>,
    /// How many tokens each row stands for, and the logarithms; empty as long as none were merged.
    sizes: Vec<f32>,
    pub(crate) log_sizes: Vec<f32>,
    /// Rows that do not skip feed-forward blocks, numbered as after dropping.
    pub(crate) busy: Vec<usize>,
    spans: [Spans; 4],
    /// Keys of the longest sequence.
    pub(crate) longest: usize,
    /// Tokens that came before (generation).
    pub(crate) past: usize,
}

impl Layout {
    /// Lays the sequences end to end. `past` tokens of the (then only) sequence came before and are in a cache.
    pub(crate) fn fill<'a>(
        &mut self,
        sequences: impl Iterator<Item = (&'a Sequence, Select<'a>)> + Clone,
        global_tokens: GlobalTokens,
        past: usize,
    ) {
        self.clear();
        self.past = past;
        self.longest = sequences.clone().map(|(s, _)| past + s.ids.len()).max().unwrap_or(0);
        self.indices.extend(0..self.longest);
        for (number, (sequence, select)) in sequences.enumerate() {
            let tokens = sequence.ids.len();
            let rows = self.ids.len()..self.ids.len() + tokens;
            let keys = if past == 0 { rows.clone() } else { 0..past + tokens };
            self.ids.extend_from_slice(&sequence.ids);
            self.positions.extend((0..tokens).map(|i| (past + i) as u32));
            if sequence.types.is_empty() {
                self.types.resize(rows.end, 0);
            } else {
                self.types.extend_from_slice(&sequence.types);
            }
            self.mixed_types.push(sequence.types.iter().any(|t| *t != sequence.types[0]));

            let first_global = self.indices.len();
            let count = match global_tokens {
                GlobalTokens::None => 0,
                GlobalTokens::First => 1.min(tokens),
                // The separator itself stays local, as in the reference.
                GlobalTokens::UntilSeparator(id) => sequence.ids.iter().position(|i| *i == id).unwrap_or(0),
            };
            self.indices.extend(0..count);
            let globals = first_global..self.indices.len();
            let from = self.globals.len();
            self.globals.extend(rows.start..rows.start + count);

            let first_selected = self.selected.len();
            let first_position = self.indices.len();
            let last = [tokens - 1];
            let chosen: &[usize] = match select {
                Select::Nothing => &[],
                Select::First => &[0],
                Select::Last => &last,
                Select::Rows(rows) => rows,
            };
            self.selected.extend(chosen.iter().map(|i| rows.start + i));
            self.indices.extend(chosen.iter().map(|i| past + i));
            let selected = first_selected..self.selected.len();
            let positions = first_position..self.indices.len();

            let first_both = self.selected_globals.len();
            let first_both_position = self.indices.len();
            for (i, at) in chosen.iter().enumerate().filter(|(_, at)| **at < count) {
                self.selected_globals.push(rows.start + at);
                self.selected_globals_at.push(first_selected + i);
                self.indices.push(*at);
            }
            let both = first_both..self.selected_globals.len();
            let both_positions = first_both_position..self.indices.len();

            let span = |queries, positions, globals| Span { queries, keys: keys.clone(), positions, globals };
            let none = 0..0;
            self.spans[0].push(number, span(rows.clone(), none.clone(), globals.clone()));
            self.spans[1].push(number, span(selected.clone(), positions, globals.clone()));
            self.spans[2].push(number, span(from..self.globals.len(), globals, none.clone()));
            self.spans[3].push(number, span(both, both_positions, none));
            self.selected_of.push(selected);
            self.sequences.push(rows);
            self.inputs.push(tokens);
        }
    }

    fn clear(&mut self) {
        for list in [&mut self.ids, &mut self.types, &mut self.positions] {
            list.clear();
        }
        for list in [&mut self.indices, &mut self.selected, &mut self.globals] {
            list.clear();
        }
        for list in [&mut self.selected_globals, &mut self.selected_globals_at] {
            list.clear();
        }
        self.sequences.clear();
        self.inputs.clear();
        self.merging.clear();
        self.sizes.clear();
        self.log_sizes.clear();
        self.mixed_types.clear();
        self.selected_of.clear();
        self.spans.iter_mut().for_each(Spans::clear);
    }

    /// Rows that others are merged into stand for those, too. Says how much of the result each merged row is.
    pub(crate) fn join_sizes(&mut self) {
        if !self.merging.is_empty() {
            self.sizes.resize(self.ids.len(), 1.0);
        }
        for merger in &mut self.merging {
            self.sizes[merger.into] += self.sizes[merger.from];
            merger.share = self.sizes[merger.from] / self.sizes[merger.into];
        }
    }

    /// Drops all rows but [`Layout::staying`], which holds the selected ones. Positions in the text are forgotten; nothing
    /// is global.
    pub(crate) fn keep_staying(&mut self) {
        let staying = std::mem::take(&mut self.staying);
        let place = |row: usize| staying.partition_point(|at| *at < row);
        for (to, from) in staying.iter().enumerate() {
            self.ids[to] = self.ids[*from];
            self.types[to] = self.types[*from];
            self.positions[to] = self.positions[*from];
        }
        for list in [&mut self.ids, &mut self.types, &mut self.positions] {
            list.truncate(staying.len());
        }
        if !self.sizes.is_empty() {
            staying.iter().enumerate().for_each(|(to, from)| self.sizes[to] = self.sizes[*from]);
            self.sizes.truncate(staying.len());
            self.log_sizes.clear();
            self.log_sizes.extend(self.sizes.iter().map(|size| size.ln()));
        }
        for rows in &mut self.sequences {
            *rows = place(rows.start)..place(rows.end);
        }
        self.selected.iter_mut().for_each(|row| *row = place(*row));
        let [all, selected, ..] = &mut self.spans;
        for (span, sequence) in all.spans.iter_mut().zip(&all.sequences) {
            span.queries = self.sequences[*sequence].clone();
            span.keys = span.queries.clone();
        }
        for (span, sequence) in selected.spans.iter_mut().zip(&selected.sequences) {
            span.keys = self.sequences[*sequence].clone();
            for (query, position) in span.queries.clone().zip(span.positions.clone()) {
                self.indices[position] = self.selected[query] - span.keys.start;
            }
        }
        self.staying = staying;
    }

    /// Rows in a set.
    pub(crate) fn count(&self, rows: RowSet) -> usize {
        match rows {
            RowSet::All => self.ids.len(),
            RowSet::Selected => self.selected.len(),
            RowSet::Globals => self.globals.len(),
            RowSet::SelectedGlobals => self.selected_globals.len(),
            RowSet::Busy => self.busy.len(),
            RowSet::Sequences => self.sequences.len(),
        }
    }

    /// The rows of a set among all rows.
    pub(crate) fn rows(&self, rows: RowSet) -> &[usize] {
        match rows {
            RowSet::Selected => &self.selected,
            RowSet::Globals => &self.globals,
            RowSet::SelectedGlobals => &self.selected_globals,
            RowSet::Busy => &self.busy,
            RowSet::All | RowSet::Sequences => &[],
        }
    }

    /// Where a set of global rows is in the buffer that attention wrote.
    pub(crate) fn places(&self, rows: RowSet) -> &[usize] {
        if rows == RowSet::SelectedGlobals { &self.selected_globals_at } else { self.rows(rows) }
    }

    /// The spans whose queries are this set.
    pub(crate) fn spans(&self, rows: RowSet) -> &Spans {
        match rows {
            RowSet::Selected => &self.spans[1],
            RowSet::Globals => &self.spans[2],
            RowSet::SelectedGlobals => &self.spans[3],
            RowSet::All | RowSet::Busy | RowSet::Sequences => &self.spans[0],
        }
    }

    /// The result rows of a sequence.
    pub(crate) fn result_rows(&self, rows: RowSet, sequence: usize) -> Range<usize> {
        match rows {
            RowSet::All => self.sequences[sequence].clone(),
            RowSet::Selected => self.selected_of[sequence].clone(),
            RowSet::Sequences => sequence..sequence + 1,
            RowSet::Globals | RowSet::SelectedGlobals | RowSet::Busy => 0..0,
        }
    }
}
