//! The paper's figures from our results: score against FLOPs reduction (figure 1) and against alpha (figure 2), and samplers
//! against each other.

use super::paper::{self, Published};
use super::results::{Measured, Score, Way};
use crate::failure::Failure;
use crate::files;
use crate::plot::{Line, Plot, Point};
use sparing_model::Sampler;
use std::path::{Path, PathBuf};

/// Writes every figure there are results for, and says which.
pub fn write(measured: &[Measured], folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut written = Vec::new();
    for (name, plot) in figures(measured) {
        let path = folder.join(format!("{name}.svg"));
        files::write(&path, plot.svg().as_bytes())?;
        written.push(path);
    }
    Ok(written)
}

/// Names of files and what goes into them.
fn figures(measured: &[Measured]) -> Vec<(String, Plot)> {
    let published = paper::published();
    let mut tasks: Vec<&str> = Vec::new();
    for m in measured {
        if !tasks.contains(&m.cell.task.as_str()) {
            tasks.push(&m.cell.task);
        }
    }
    let mut figures = Vec::new();
    for task in tasks {
        let of_task: Vec<&Measured> = measured.iter().filter(|m| m.cell.task == task).collect();
        let plots = [
            ("figure1", trade_off(task, &of_task, &published)),
            ("figure2", by_alpha(task, &of_task, &published)),
            ("samplers", samplers(task, &of_task)),
        ];
        let drawn = plots.into_iter().filter(|(_, plot)| plot.lines.iter().any(|line| line.points.len() > 1));
        figures.extend(drawn.map(|(name, plot)| (format!("{name}-{task}"), plot)));
    }
    figures
}

fn point(x: f64, score: &Score) -> Point {
    Point { x, y: 100.0 * score.mean, half: score.half.map(|half| 100.0 * half) }
}

/// Lines of one name each, through the points of every result that has a name, by alpha.
fn lines(
    measured: &[&Measured],
    name: impl Fn(&Measured, Way) -> Option<String>,
    x: impl Fn(&Measured, Way) -> f64,
) -> Vec<Line> {
    let mut found: Vec<(String, Vec<(f32, Point)>)> = Vec::new();
    for m in measured {
        let (Some(way), Some(score)) = (m.cell.way, m.headline()) else { continue };
        let Some(name) = name(m, way) else { continue };
        let place = (way.alpha, point(x(m, way), score));
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(place),
            None => found.push((name, vec![place])),
        }
    }
    let line = |(name, mut points): (String, Vec<(f32, Point)>)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name, points: points.into_iter().map(|(_, point)| point).collect(), apart: false }
    };
    found.into_iter().map(line).collect()
}

/// The scores of exact engines, one per model and precision.
fn exact(measured: &[&Measured], x: f64) -> Line {
    let mut points: Vec<Point> = Vec::new();
    for score in measured.iter().filter_map(|m| m.headline()) {
        let point = Point { x, y: 100.0 * score.exact, half: None };
        if !points.contains(&point) {
            points.push(point);
        }
    }
    Line { name: "exact".to_string(), points, apart: true }
}

/// The authors' line for the task, its points where `x` has them.
fn authors(
    measured: &[&Measured],
    published: &[Published],
    x: impl Fn(&paper::PublishedResult) -> f64,
) -> Option<Line> {
    let first = measured.first()?;
    let theirs = paper::find(published, first.cell.part, &first.cell.task, first.headline()?.metric)?;
    let points = theirs.results.iter().map(|r| Point { x: x(r), y: r.mean, half: Some(r.half) }).collect();
    Some(Line { name: format!("the paper's {}", theirs.part.published()), points, apart: false })
}

fn subtitle(measured: &[&Measured]) -> String {
    let Some(first) = measured.first() else { return String::new() };
    let rows = || measured.iter().map(|m| m.cell.rows);
    let inputs = match (rows().min().unwrap_or(0), rows().max().unwrap_or(0)) {
        (least, most) if least < most => format!("{least} to {most}"),
        (_, most) => most.to_string(),
    };
    let seeds = measured.iter().map(|m| m.cell.seeds).max().unwrap_or(1);
    format!("{}, {inputs} inputs, up to {seeds} seeds; bars: 95% over seeds", first.cell.model)
}

fn metric(measured: &[&Measured]) -> String {
    let name = measured.first().and_then(|m| m.headline()).map_or("", |score| score.metric.name());
    format!("{name} (points)")
}

fn trade_off(task: &str, measured: &[&Measured], published: &[Published]) -> Plot {
    let name = |what: &'static str| {
        move |m: &Measured, way: Way| {
            let own = way.sampler == Sampler::Paper && way.padded.is_some();
            own.then(|| format!("{}, {}, {what}", m.cell.model, m.cell.precision))
        }
    };
    let mut all = lines(measured, name("as the authors count"), |m, _| m.authors);
    all.extend(lines(measured, name("on real tokens"), |m, _| m.values));
    all.extend(authors(measured, published, |r| r.reduction));
    all.push(exact(measured, 1.0));
    Plot {
        title: format!("Figure 1, {task}: score against FLOPs reduction"),
        subtitle: subtitle(measured),
        x: "times fewer FLOPs of the value encoding".into(),
        y: metric(measured),
        lines: all,
    }
}

fn by_alpha(task: &str, measured: &[&Measured], published: &[Published]) -> Plot {
    let name = |m: &Measured, way: Way| {
        let length = way.padded.map_or("actual length".to_string(), |n| format!("padded to {n}"));
        (way.sampler == Sampler::Paper).then(|| format!("{}, {}, {length}", m.cell.model, m.cell.precision))
    };
    let mut all = lines(measured, name, |_, way| f64::from(way.alpha));
    all.extend(authors(measured, published, |r| f64::from(r.alpha)));
    all.push(exact(measured, 0.0));
    Plot {
        title: format!("Figure 2, {task}: score against alpha"),
        subtitle: subtitle(measured),
        x: "alpha".into(),
        y: metric(measured),
        lines: all,
    }
}

fn samplers(task: &str, measured: &[&Measured]) -> Plot {
    let several = measured.iter().any(|m| m.cell.way.is_some_and(|way| way.sampler != Sampler::Paper));
    let name = |m: &Measured, way: Way| {
        // int8 saves no operations.
        let shown = several && way.padded.is_none() && m.cell.precision == "f32" && way.sampler != Sampler::Int8;
        shown.then(|| way.sampler.name().to_string())
    };
    let mut all = lines(measured, name, |m, _| m.values);
    all.push(exact(measured, 1.0));
    Plot {
        title: format!("Samplers at equal operations, {task}"),
        subtitle: format!("{}; f32, actual length", subtitle(measured)),
        x: "times fewer FLOPs of the value encoding on real tokens".into(),
        y: metric(measured),
        lines: all,
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{measured, padded};
    use super::*;

    #[test]
    fn a_figure_where_there_is_a_line_to_draw() {
        let all = [
            measured("sst2", padded(0.4), (0.9, 0.89), 1.5),
            measured("sst2", padded(0.2), (0.9, 0.9), 1.2),
            measured("mine", padded(0.2), (0.9, 0.9), 1.2),
        ];
        let figures = figures(&all);
        let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["figure1-sst2", "figure2-sst2"]);
        let line = &figures[1].1.lines[0];
        assert_eq!(line.points.iter().map(|p| (p.x * 10.0).round()).collect::<Vec<_>>(), [2.0, 4.0]);
        assert!(figures.iter().all(|(_, plot)| plot.lines.iter().any(|line| line.name == "the paper's BERT")));
    }
}
