//! What the authors published, read from the file that holds it.

use super::results::Part;
use sparing_tasks::Metric;

/// One row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Which table.
    pub part: Part,
    /// The task, by the name that `--task` has for it.
    pub task: String,
    /// The metric's name, see [`Metric::name`].
    pub metric: String,
    /// Without approximation, in points.
    pub exact: f64,
    /// At alpha 0.2, 0.4, 0.6 and 1.0.
    pub results: Vec<PublishedResult>,
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedResult {
    /// The error coefficient.
    pub alpha: f32,
    /// Points.
    pub mean: f64,
    /// Half the width of its 95% interval.
    pub half: f64,
    /// Times fewer FLOPs.
    pub reduction: f64,
}

/// All of it. What is not as the file's header says is left out; a test sees that nothing is.
pub fn published() -> Vec<Published> {
    let rows = include_str!("paper.tsv").lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.filter_map(row).collect()
}

/// The row of a task's metric.
pub fn find(all: &[Published], part: Part, task: &str, metric: Metric) -> Option<Published> {
    let same = |p: &&Published| p.part == part && p.task == task && p.metric == metric.name();
    all.iter().find(same).cloned()
}

fn row(line: &str) -> Option<Published> {
    let mut cells = line.split('\t');
    let table: usize = cells.next()?.parse().ok()?;
    let (task, metric) = (cells.next()?.to_string(), cells.next()?.to_string());
    let numbers: Vec<f64> = cells.map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
    let (exact, rest) = numbers.split_first()?;
    let result =
        |(alpha, cell): (f32, &[f64])| PublishedResult { alpha, mean: cell[0], half: cell[1], reduction: cell[2] };
    let results: Vec<_> = [0.2, 0.4, 0.6, 1.0].into_iter().zip(rest.chunks_exact(3)).map(result).collect();
    let part = Part::ALL.into_iter().find(|part| part.table() == table)?;
    (rest.len() == 12).then_some(Published { part, task, metric, exact: *exact, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let all = published();
        let count = |part| all.iter().filter(|row| row.part == part).count();
        assert_eq!(Part::ALL.map(count), [13, 13, 5]);
        let sst2 = find(&all, Part::Model, "sst2", Metric::Accuracy).unwrap();
        let reductions: Vec<f64> = sst2.results.iter().map(|r| r.reduction).collect();
        assert_eq!((sst2.exact, reductions), (92.43, vec![5.58, 6.71, 8.13, 12.34]));
    }
}
