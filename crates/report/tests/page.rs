//! The page and the card: well-formed, complete, and safe whatever the report holds.

use roxmltree::{Document, ParsingOptions};
use serde_json::Value;
use sparing_report::{
    BaseCard, Candidate, Focus, Gain, Interval, LayerMap, Numbers, PartTime, Report, State, Verification, Width,
};

fn example() -> Report {
    Report::parse(include_str!("example.json")).unwrap()
}

/// The page as XML: every element closed, every text escaped, no attribute twice.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap()
}

/// Everything that a reader sees or hears.
fn words(page: &str) -> String {
    let document = parsed(page);
    let shown = document.descendants().filter(|node| !node.has_tag_name("style") && !node.has_tag_name("script"));
    shown
        .filter_map(|node| if node.is_text() { node.text() } else { node.attribute("aria-label") })
        .collect::<String>()
        .replace('\u{a0}', " ")
}

fn hostile() -> Report {
    let text = || {
        "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&\u{0}\u{1b}[2J\u{202e}]]>-->\n---\n|`#"
            .to_owned()
    };
    let mut report = example();
    report.model.name = text();
    report.model.hub = Some(text());
    report.model.family = text();
    (report.command, report.created, report.strategy, report.analysis, report.timing) =
        (text(), text(), text(), text(), text());
    (report.machine.cpu, report.machine.isa, report.machine.os) = (text(), text(), text());
    (report.versions.sparing, report.versions.commit, report.versions.build, report.order) =
        (text(), Some(text()), Some(text()), text());
    report.task.name = text();
    report.task.metric.name = text();
    report.economies = vec![text()];
    report.notes = vec![text()];
    report.criterion = text();
    report.gains[0].technique = text();
    report.parts_before[0].part = text();
    (report.elements.layers[0].tokens, report.elements.layers[0].computed) = (Some(text()), Some(text()));
    report.elements.layers[0].precision = Some(text());
    report.elements.head = Some(Numbers { precision: Some(text()), ..Numbers::default() });
    for candidate in &mut report.candidates {
        (candidate.name, candidate.what) = (text(), text());
        candidate.plan = serde_json::json!({ text(): text() });
    }
    report
}

#[test]
fn the_page_is_one_well_formed_file_that_asks_for_nothing() {
    let page = example().html();
    let document = parsed(&page);
    let root = document.root_element();
    assert!(root.has_tag_name("html") && root.attribute("lang") == Some("en"));
    for node in document.descendants() {
        assert!(!["link", "img", "iframe", "object"].contains(&node.tag_name().name()));
        for attribute in node.attributes() {
            assert!(!["src", "href"].contains(&attribute.name()) && !attribute.name().starts_with("on"));
        }
    }
    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids.len(), ids.iter().collect::<std::collections::HashSet<_>>().len());
    for picture in document.descendants().filter(|node| node.has_tag_name("svg")) {
        assert!(picture.attribute("aria-label").is_some() || picture.attribute("aria-hidden").is_some());
    }
    for heading in document.descendants().filter(|node| node.has_tag_name("th")) {
        assert!(matches!(heading.attribute("scope"), Some("col" | "row")));
    }
}

#[test]
fn every_candidate_and_every_element_is_on_the_page() {
    let report = example();
    let page = report.html();
    let words = words(&page);
    for candidate in report.candidates.iter().chain([&report.baseline]) {
        let score = format!("{:.2}%", candidate.search_score * 100.0);
        let time = format!("{:.1} ms", candidate.time_ms);
        let size = format!("{:.0}", candidate.bytes as f64 / 1e6);
        for shown in [&candidate.what, &score, &time] {
            assert!(words.contains(shown.as_str()), "{shown} of {}", candidate.name);
        }
        assert!(words.contains(&size) || candidate.bytes < 100_000_000, "{size}");
    }
    let states = |class: &str| page.matches(&format!("class=\"cell {class}\"")).count() - 1;
    let layers = &report.elements.layers;
    let parts = |layer: &LayerMap, state: State| -> usize {
        let heads = if layer.attention == State::Removed { &[State::Removed][..] } else { &layer.heads };
        heads.iter().chain(&layer.groups).filter(|s| **s == state).count()
    };
    let count = |state| layers.iter().map(|layer| parts(layer, state)).sum::<usize>();
    // One square of each kind is in the legend; embeddings and head are a bar each.
    assert_eq!(states("kept"), count(State::Kept) + 2);
    assert_eq!(states("approximated"), count(State::Approximated));
    assert_eq!(states("removed"), count(State::Removed));
    for text in [
        "2.41×",
        "4.20×",
        "91.06%",
        "89.1 to 92.8",
        "98.4%",
        "104 MB",
        "−45.0%",
        "sparing optimize",
        "31.2 min",
        "95% confidence",
    ] {
        assert!(words.contains(text), "{text}");
    }
    for text in
        report.notes.iter().chain(&report.economies).chain([&report.command, &report.timing, &report.machine.cpu])
    {
        assert!(words.contains(text.as_str()), "{text}");
    }
}

#[test]
fn what_is_foreseen_is_marked_and_the_verdict_is_said_once() {
    let mut report = example();
    let page = report.html();
    let words = words(&page);
    let hollow =
        |page: &str| page.matches("class=\"mark within\"").count() + page.matches("class=\"mark beyond\"").count();
    let foreseen = report.candidates.iter().filter(|candidate| !candidate.is_timed()).count();
    // Twice in pictures, once in a legend; some are off the picture.
    assert!((3..=2 * foreseen + 1).contains(&hollow(&page)), "{}", hollow(&page));
    let unmeasured = report.candidates.iter().find(|candidate| !candidate.is_timed()).unwrap();
    assert!(words.contains(&format!("~{:.1} ms", unmeasured.time_ms)));
    assert!(words.contains("2.41× faster (2.34 to 2.50)"));
    assert!(words.contains("within, on searched rows"));
    assert!(words.contains(&report.criterion) && words.contains("doubt "));
    assert!(!words.contains("chosen (chosen)"));

    report.verdict = None;
    report.judge();
    assert_eq!(serde_json::from_str::<Value>(&report.json()).unwrap()["verdict"], "within");
    let chosen = report.chosen.unwrap();
    report.candidates[chosen].score = Some(0.9);
    report.judge();
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!((&json["verdict"], &json["candidates"][chosen]["meets_budget"]), (&"beyond".into(), &true.into()));
    assert!((json["lost"].as_f64().unwrap() - (0.9128 - 0.9) / 0.9128).abs() < 1e-9);
}

#[test]
fn the_chosen_one_is_in_the_table_of_the_frontier_whatever_beats_it() {
    let mut report = example();
    let chosen = report.chosen.unwrap();
    report.candidates[chosen].on_frontier = false;
    let page = report.html();
    let document = parsed(&page);
    let named = |node: &roxmltree::Node<'_, '_>| node.attribute("aria-label") == Some("The frontier");
    let table = document.descendants().find(named).unwrap();
    let marked = table.descendants().filter(|node| node.attribute("class") == Some("chosen"));
    assert_eq!(marked.count(), 1);
    assert!(words(&page).contains("The chosen one is here too"));
    assert!(!words(&example().html()).contains("The chosen one is here too"));
}

#[test]
fn parts_have_colours_of_their_own_and_are_explained() {
    let mut report = example();
    let part = |i: usize| PartTime { part: if i == 8 { "importance".into() } else { format!("part {i}") }, ms: 1.0 };
    (report.parts_before, report.parts_after) = ((0..9).map(part).collect(), Vec::new());
    let page = report.html();
    for i in 0..9 {
        assert_eq!(page.matches(&format!("class=\"swatch part{i}\"")).count(), 1, "{i}");
        assert_eq!(page.matches(&format!(".swatch.part{i} {{")).count(), 1, "{i}");
    }
    assert!(words(&page).contains("what choosing tokens costs"));
}

#[test]
fn hostile_text_stays_text() {
    let report = hostile();
    let page = report.html();
    let document = parsed(&page);
    assert_eq!(document.descendants().filter(|node| node.has_tag_name("script")).count(), 1);
    assert!(!page.contains("<img") && !page.contains("alert(1)</script>") && !page.contains('\u{202e}'));

    let card = report.card(&BaseCard { license: Some("x\n---\n<b>".into()), ..BaseCard::default() });
    let (_, rest) = card.split_once("---\n").unwrap();
    let (front, body) = rest.split_once("\n---\n").unwrap();
    assert!(front.lines().all(|line| line.starts_with(['-', ' ']) || line.contains(':')), "{front}");
    assert!(!body.lines().filter(|line| !line.starts_with("    ")).any(|line| line.contains('<')), "{body}");
}

/// Reports with nothing, with one thing, and with numbers that are none.
fn odd() -> Vec<Report> {
    let broken = |number: f64| {
        let mut report = example();
        let interval = Some(Interval { low: number, high: number });
        for candidate in report.candidates.iter_mut().chain([&mut report.baseline]) {
            *candidate = Candidate {
                search_score: number,
                search_interval: interval,
                score: Some(number),
                interval,
                change: interval,
                agreement: Some(number),
                doubt: Some(number),
                luck: Some(number),
                time_ratio: number,
                time_interval: interval,
                time_ms: number,
                bytes: 0,
                memory_bytes: Some(0),
                ..candidate.clone()
            };
        }
        report.budget = number;
        report.seconds = Some(number);
        report.gains = vec![Gain { technique: "t".into(), time: number, time_interval: interval, bytes: number }];
        (report.lost, report.verification) = (
            Some(number),
            Some(Verification {
                score: number,
                time_ratio: number,
                time_interval: interval,
                search_time: interval,
                bytes: 0,
            }),
        );
        report.parts_before = vec![PartTime { part: "p".into(), ms: number }];
        report.parts_after.clone_from(&report.parts_before);
        report
    };
    let mut none = example();
    none.candidates.clear();
    let mut unchosen = example();
    unchosen.chosen = None;
    let mut wide = example();
    wide.focus = Focus::Size;
    wide.elements.layers = vec![LayerMap { width: Some(Width { left: 9, of: 0 }), ..LayerMap::default() }; 96];
    wide.elements.layers[0].heads = vec![State::Approximated; 128];
    wide.elements.layers[1].width = Some(Width { left: 7, of: 3 });
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e300, -1e300, 1e-300, f64::MIN_POSITIVE];
    numbers.map(broken).into_iter().chain([Report::default(), none, unchosen, wide]).collect()
}

#[test]
fn odd_reports_have_pages_without_odd_numbers() {
    for (i, report) in odd().iter().enumerate() {
        let page = report.html();
        parsed(&page);
        let card = report.card(&BaseCard::default());
        for text in [words(&page), card] {
            for wrong in ["NaN", "inf ", "inf%", "inf×", "Infinity", "null"] {
                assert!(!text.contains(wrong), "report {i} says {wrong}");
            }
            let longest = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
            assert!(longest < Some(20), "report {i} has a number of {longest:?} digits");
        }
        let document = parsed(&page);
        for shape in document.descendants().filter(|node| node.has_tag_name("rect") || node.has_tag_name("circle")) {
            for attribute in
                shape.attributes().filter(|a| ["x", "y", "cx", "cy", "width", "height"].contains(&a.name()))
            {
                let number: f64 = attribute.value().parse().unwrap();
                assert!((-10.0..4000.0).contains(&number), "report {i}: {shape:?}");
            }
        }
    }
}

#[test]
fn the_data_come_back_and_newer_files_are_read() {
    for report in [example(), hostile(), Report::default()] {
        assert_eq!(Report::parse(&report.json()).unwrap(), report);
    }
    for report in odd() {
        // NaN is not equal to itself: the text is compared.
        assert_eq!(Report::parse(&report.json()).unwrap().json(), report.json());
    }
    let mut newer: Value = serde_json::from_str(include_str!("example.json")).unwrap();
    newer["version"] = 2.into();
    newer["carbon"] = 3.into();
    newer["baseline"]["joules"] = 4.into();
    newer.as_object_mut().unwrap().remove("gains");
    let read = Report::parse(&newer.to_string()).unwrap();
    assert!(read.version == 2 && read.gains.is_empty() && read.candidates.len() == example().candidates.len());
}

#[test]
fn what_a_fresh_process_finds_is_believed_more_than_the_search() {
    let mut report = example();
    assert!(words(&report.html()).contains("Verified."));
    let promised = report.verification.clone().unwrap();
    let slower = Some(Interval { low: 0.5, high: 0.6 });
    let worse: [&dyn Fn(&mut Verification); 5] =
        [&|v| v.score = 0.905, &|v| v.time_interval = slower, &|v| v.search_time = slower, &|v| v.bytes *= 2, &|v| {
            v.score = f64::NAN
        }];
    for spoil in worse {
        let mut found = promised.clone();
        spoil(&mut found);
        report.verification = Some(found);
        let words = words(&report.html());
        assert!(words.contains("Not the same when measured again.") && !words.contains("Verified."));
    }
}

#[test]
fn the_card_says_what_the_hub_reads() {
    let base = BaseCard::parse("---\nlicense: mit\nlanguage: en\npipeline_tag: text-classification\n---\n");
    let card = example().card(&base);
    let front = "---\nlicense: mit\nlanguage:\n- en\nbase_model: example/bert-base-sst2\npipeline_tag: text-classification\n\
                 tags:\n- sparing\n- optimized\nmetrics:\n- accuracy\nmodel-index:\n";
    assert!(card.starts_with(front), "{card}");
    assert!(card.contains("      value: 0.9106\n") && card.contains("91.06% (89.1 to 92.8)"));
    assert!(card.contains("    sparing optimize example/bert-base-sst2 --task sst2"));
    assert!(card.contains("other programs fail to load them"));
    let mut single = example();
    single.machine.cores = 1;
    assert!(single.card(&base).contains(", 1 core, "));
    // A directory has no name on the Hub; what it was made from has.
    let mut local = example();
    local.model.hub = None;
    let base = BaseCard { base_model: Some("org/older".into()), ..base };
    assert!(local.card(&base).contains("\nbase_model: org/older\n"));
    assert!(example().card(&base).contains("\nbase_model: example/bert-base-sst2\n"));
    let as_it_came = Report { chosen: None, ..example() };
    assert!(as_it_came.card(&base).contains("other programs read them as before"));
}

#[test]
fn three_files_are_saved() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("new");
    example().save(&inside, &BaseCard::default()).unwrap();
    for name in ["report.json", "report.html", "README.md"] {
        assert!(inside.join(name).metadata().unwrap().len() > 1000, "{name}");
    }
    // What was there stays until the new one is whole: here it has another name too.
    std::fs::hard_link(inside.join("report.json"), inside.join("old.json")).unwrap();
    let before = std::fs::read(inside.join("old.json")).unwrap();
    Report { seed: 77, ..example() }.save(&inside, &BaseCard::default()).unwrap();
    assert!(std::fs::read(inside.join("old.json")).unwrap() == before);
    assert!(std::fs::read(inside.join("report.json")).unwrap() != before);
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 4);
    let error = example().save(&inside.join("report.json"), &BaseCard::default()).unwrap_err().to_string();
    assert!(error.contains("report.json: cannot be written"), "{error}");
}

#[test]
fn attention_of_its_own_bits_and_keys_shows_in_the_map() {
    let mut report = example();
    let own = LayerMap {
        attention: State::Approximated,
        computed: Some("chosen keys".into()),
        attention_bits: Some(4),
        bits: Some(8),
        ..LayerMap::default()
    };
    let same = LayerMap { bits: Some(6), ..LayerMap::default() };
    let floats = LayerMap { attention_bits: Some(0), bits: Some(5), ..LayerMap::default() };
    report.elements.layers = vec![own, same, floats];
    let page = report.html();
    for told in ["layer 0, attention: reduced: chosen keys", "attention 4, feed-forward 8", ">4/8<", ">6<", "/5<"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn what_runs_in_int8_and_what_does_not_shows_in_the_map() {
    let mut report = example();
    report.elements.layers.truncate(1);
    report.elements.layers[0].precision = Some("bf16".into());
    report.elements.embeddings = Some(Numbers { bits: Some(5), precision: Some("f32".into()) });
    report.elements.head = None;
    let page = report.html();
    for told in ["layer 0 runs in bf16", ">bf16<", "embeddings: kept", ">f32<", ">5<"] {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("head: kept"));
}

#[test]
fn neurons_that_went_one_by_one_are_a_share_and_not_places() {
    let mut report = example();
    let width = |left| Some(Width { left, of: 1024 });
    let some = LayerMap { ffn: State::Approximated, width: width(768), ..LayerMap::default() };
    let all = LayerMap { width: width(1024), ..LayerMap::default() };
    report.elements.layers = vec![some, all];
    let page = report.html();
    assert!(page.contains("layer 0, feed-forward: 768 of 1,024 wide"), "the bar's tip");
    assert!(page.contains(">neurons<") && page.contains(">1,792<") && page.contains(">256<"));
    let words = words(&page);
    for told in ["not which: they were chosen one by one", "A small square is a head;"] {
        assert!(words.contains(told), "{told}");
    }
    // Groups that went as such are squares where they stood, and nobody has to be warned.
    let report = example();
    assert!(!report.html().contains("one by one"));
}

#[test]
fn the_order_and_the_build_are_said_where_they_are_known() {
    let mut report = example();
    report.order = "from the bottom".into();
    (report.versions.commit, report.versions.build) = (Some("0123abc".into()), Some("optimised".into()));
    let told = words(&report.html());
    assert!(told.contains(", from the bottom") && told.contains("0.1.0, commit 0123abc, optimised"), "{told}");
    assert!(!words(&example().html()).contains("commit"));
}
