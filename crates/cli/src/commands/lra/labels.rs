//! Names beside dots that do not lie over each other.

/// The height of a name, with some air.
const LINE: f64 = 13.0;
/// The mean width of a letter of 11 px.
const LETTER: f64 = 6.1;
/// How far to move at a time.
const STEP: f64 = 2.0;

/// Where the middle of a name's base line is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub x: f64,
    pub y: f64,
}

/// Places for names within `(left, right)` and `(top, bottom)`: as near above or below to where they are wanted as none lies over another.
/// Where there is no room left, they stay.
pub fn places(wanted: &[Wanted<'_>], (left, right): (f64, f64), (top, bottom): (f64, f64)) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*b].y.total_cmp(&wanted[*a].y));
    let mut placed: Vec<Option<(f64, f64)>> = vec![None; wanted.len()];
    for at in order {
        let half = half_width(wanted[at].name);
        let x = wanted[at].x.min(right - half).max(left + half);
        let free = |y: f64| {
            let clear = |(other, place): (&Wanted<'_>, &Option<(f64, f64)>)| {
                place.is_none_or(|(px, py)| (px - x).abs() >= half + half_width(other.name) || (py - y).abs() >= LINE)
            };
            (top..=bottom).contains(&y) && wanted.iter().zip(&placed).all(clear)
        };
        let away = (0..=((bottom - top) / STEP) as usize).map(|n| n as f64 * STEP);
        let found = away.flat_map(|d| [wanted[at].y - d, wanted[at].y + d]).find(|y| free(*y));
        placed[at] = Some((x, found.unwrap_or(wanted[at].y)));
    }
    placed.into_iter().flatten().collect()
}

fn half_width(name: &str) -> f64 {
    name.chars().count() as f64 * LETTER / 2.0 + 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirty names at almost one place: all within the frame, none over another, those with room where they are wanted.
    #[test]
    fn names_do_not_overlap() {
        let names: Vec<String> = (0..30).map(|i| format!("mechanism-{i}")).collect();
        let mut wanted: Vec<Wanted<'_>> = names
            .iter()
            .enumerate()
            .map(|(i, name)| Wanted { name, x: 500.0 + (i % 7) as f64, y: 300.0 + (i % 5) as f64 })
            .collect();
        wanted.push(Wanted { name: "alone", x: 100.0, y: 200.0 });
        wanted.push(Wanted { name: "at-the-edge", x: 820.0, y: 90.0 });
        let found = places(&wanted, (70.0, 820.0), (84.0, 500.0));
        assert_eq!(found[30], (100.0, 200.0));
        for (i, (x, y)) in found.iter().enumerate() {
            let half = half_width(wanted[i].name);
            assert!(x - half >= 70.0 && x + half <= 820.0 && (84.0..=500.0).contains(y), "{i}: {x} {y}");
            for (j, (ox, oy)) in found.iter().enumerate().take(i) {
                let apart = (x - ox).abs() >= half + half_width(wanted[j].name) || (y - oy).abs() >= LINE;
                assert!(apart, "{i} over {j}");
            }
        }
    }
}
