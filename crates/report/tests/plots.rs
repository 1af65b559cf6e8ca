//! Tests of rendered plots: golden text, and properties that hold for all data.

use proptest::prelude::*;
use roxmltree::Document;
use tidegate_report::{Axis, Glyphs, Plot, Point, Screen, Series, Style, Unit, svg};
use unicode_width::UnicodeWidthStr;

const PLAIN: Screen = Screen {
    width: 60,
    height: 9,
    style: Style::Plain,
    glyphs: Glyphs::Unicode,
};
const ASCII: Screen = Screen {
    glyphs: Glyphs::Ascii,
    ..PLAIN
};

// Layout of SVG documents, in SVG units.
/// Distance from the middle of a line of text down to its baseline.
const BASELINE_SHIFT: f64 = 4.5;
/// Greatest sum of the rounding of two coordinates to one decimal, and a bit.
const ROUNDING: f64 = 0.11;
/// Line height less the rounding of two coordinates.
const LINE_HEIGHT: f64 = 19.9;
const FRAME_HEIGHT: f64 = 340.0;
/// Distance from the frame to the name of the x axis below it.
const X_NAME_BASELINE: f64 = 40.0;

/// IOPS by request size, measured and estimated, as of a disk of 20,000 IOPS and 400 MB/s.
fn profile() -> Plot {
    let size = Axis::log2("request size", Unit::Bytes);
    let mut plot = Plot::new("Random reads", size, Axis::log10("IOPS", Unit::Number));
    let iops = |size: f64| 1.0 / (1.0 / 20e3 + size / 400e6);
    let sizes = || (12..=20).map(|k| f64::from(1 << k));
    let measured = sizes().map(|size| {
        let iops = iops(size);
        Point::new(size, iops).between(iops * 0.7, iops * 1.4)
    });
    plot.add(Series::line("measured").points(measured));
    let estimated = sizes().step_by(2).map(|size| (size, iops(size) * 0.4));
    plot.add(Series::marks("estimated").points(estimated));
    plot
}

#[test]
fn a_profile_in_braille() {
    let expected = "\
Random reads
IOPS
    │  ●⣀⣀⡀  ⢠
10k ┤  ⠇  ⠈⠉⠉●⠉⠒⠒⠒⠤●⠤⢄⣀⣀⡀ ⡄
    │  ▲           ⠈    ⠈⠉●⠒⠢⠤⢄⣀⢰
 3k ┤              ▲            ●⠑⠒⠢⠤⢄●⡀
    │                           ▲     ⠸⠈⠉⠒⠒⠤⢄●
 1k ┤                                        ⠇⠉⠑⠒⠤⢄●
    │                                        ▲     ⠇⠉⠒⠢⠤⣀⢠
300 ┤                                                    ●
    │                                                    ▲
    └──┬─────┬─────┬──────┬─────┬─────┬──────┬─────┬─────┬──
      4K    8K    16K    32K   64K  128K   256K  512K   1M
                      request size (bytes)
     ● measured   ▲ estimated
";
    assert_eq!(profile().render(&PLAIN), expected);
    // The guide explains this one.
    assert!(include_str!("../../../docs/plots.md").contains(expected));
}

#[test]
fn a_profile_in_ascii() {
    let expected = "\
Random reads
IOPS
    |  .     .
10k +  o'''''o'''...o..   .
    |  x            '  '''o'... .
 3k +               x          'o''...o.
    |                           x     : ''''.o.
 1k +                                        ' '''.o
    |                                        x     :''.. :
300 +                                                   'o
    |                                                    x
    +--+-----+------+-----+-----+-----+------+-----+-----+--
      4K    8K     16K   32K   64K  128K   256K  512K   1M
                      request size (bytes)
     o measured   x estimated
";
    assert_eq!(profile().render(&ASCII), expected);
}

#[test]
fn colours_change_only_where_the_series_does() {
    let axis = |label| Axis::linear(label, Unit::Number);
    let mut plot = Plot::new("Plot", axis("x"), axis("y"));
    plot.add(Series::marks("a").points([(0.0, 1.0), (1.0, 1.0), (3.0, 1.0)]));
    plot.add(Series::marks("b").points([(2.0, 1.0)]));
    let screen = Screen {
        style: Style::Colour,
        width: 24,
        height: 3,
        ..ASCII
    };
    let text = plot.render(&screen);
    let drawn = "1 +\x1b[36mo     o      \x1b[0m\x1b[33mx     \x1b[0m\x1b[36mo\x1b[0m\n";
    assert!(text.contains(drawn), "{text:?}");
    assert!(
        text.contains("\x1b[36mo\x1b[0m a   \x1b[33mx\x1b[0m b\n"),
        "{text:?}"
    );
}

#[test]
fn overlapping_points_get_a_legend_entry() {
    let time = Axis::linear("time", Unit::Seconds);
    let mut plot = Plot::new("Same", time, Axis::linear("IOPS", Unit::Number));
    plot.add(Series::marks("a").points([(0.0, 1.0), (1.0, 2.0)]));
    plot.add(Series::marks("b").points([(0.0, 1.0)]));
    let text = plot.render(&ASCII);
    assert!(text.contains("o a   x b   * more than one\n"), "{text}");
    let drawn = canvas(&text);
    let times = |mark| drawn.matches(mark).count();
    assert_eq!((times('*'), times('o'), times('x')), (1, 1, 0), "{text}");
}

#[test]
fn omitted_points_are_noted() {
    let time = Axis::linear("time", Unit::Seconds);
    let mut plot = Plot::new("Gaps", time, Axis::log10("IOPS", Unit::Number));
    plot.add(Series::line("a").points([
        Point::new(0.0, 10.0),
        Point::new(1.0, f64::NAN),
        Point::new(f64::INFINITY, 10.0),
        Point::new(2.0, 0.0),
        Point::new(3.0, 100.0).between(-5.0, 200.0),
        Point::new(4.0, 100.0).between(50.0, f64::NAN),
    ]));
    plot.add(Series::line("b"));
    let notes = "left out of \"a\": 2 points not finite, 1 point at 0 or below on a \
                 logarithmic axis, 1 interval not finite, 1 interval cut off at a logarithmic \
                 axis' end \"b\" has no points";
    for screen in [PLAIN, ASCII] {
        let text = words(&plot.render(&screen));
        assert!(text.ends_with(notes), "{text}");
    }
    let text = svg(&[plot]);
    let document = Document::parse(&text).expect("XML");
    let shown = document.descendants().filter(has_class("note"));
    let shown: Vec<&str> = shown.filter_map(|n| n.text()).collect();
    assert_eq!(shown.join(" "), notes);
}

#[test]
fn an_empty_plot_says_nothing_to_plot() {
    let time = Axis::linear("time", Unit::Seconds);
    let plot = Plot::new("Empty", time, Axis::log10("IOPS", Unit::Number));
    assert!(plot.render(&ASCII).contains("nothing to plot"));
    assert!(svg(&[plot]).contains(">nothing to plot</text>"));
}

#[test]
fn an_empty_plot_with_a_reference_line_stays_within_the_width() {
    let time = Axis::linear("time", Unit::Seconds);
    let mut plot = Plot::new("Empty", time, Axis::linear("IOPS", Unit::Number));
    plot.level(500_000.0, "limit");
    // 24 columns are the minimum.
    for width in [24, 40, 72] {
        let text = plot.render(&Screen { width, ..ASCII });
        assert!(text.contains("nothing to plot"), "{text}");
        for line in text.lines() {
            assert!(line.width() <= width, "{width} columns:\n{text}");
        }
    }
}

#[test]
fn a_gap_is_not_bridged() {
    let axis = |label| Axis::linear(label, Unit::Number);
    let mut plot = Plot::new("", axis("x"), axis("y"));
    let ys = [0.0, 1.0, f64::NAN, 3.0, 4.0];
    let points = (0..5).map(|i| (f64::from(i), ys[i as usize]));
    plot.add(Series::line("a").points(points));
    let text = svg(&[plot]);
    let document = Document::parse(&text).expect("XML");
    let line = document
        .descendants()
        .find(has_class("line"))
        .expect("a line");
    let path = line.attribute("d").expect("a path");
    let times = |command| path.matches(command).count();
    assert_eq!((times('M'), times('L')), (2, 2), "{path}");
}

#[test]
fn a_point_is_drawn_at_the_ticks_of_its_values() {
    let size = Axis::log2("request size", Unit::Bytes);
    let mut plot = Plot::new("", size, Axis::log10("IOPS", Unit::Number));
    let point = (65_536.0, 1000.0);
    let others = [(4096.0, 100.0), (1_048_576.0, 1e5)];
    plot.add(Series::marks("").points([point]));
    plot.add(Series::marks("").points(others));
    let text = svg(&[plot]);
    let document = Document::parse(&text).expect("XML");
    let label = |label, attribute| {
        let shown = document.descendants().find(|n| n.text() == Some(label));
        let at = shown.and_then(|node| node.attribute(attribute));
        at.and_then(|at| at.parse::<f64>().ok()).expect("a place")
    };
    let mark = document.descendants().find(has_class("f0"));
    let path = mark.and_then(|node| node.attribute("d")).expect("a mark");
    let [(x, y)] = coordinates(path)[..] else {
        panic!("{path}");
    };
    assert_eq!(x, label("64K", "x"));
    // Labels stand on their line of text.
    assert!(
        (label("1k", "y") - BASELINE_SHIFT - y).abs() < ROUNDING,
        "{path}"
    );
}

#[test]
fn a_name_cannot_break_a_document_or_move_the_cursor() {
    let name = "<b>&amp; \"it's\" ]]> \u{1b}[2J\n\u{0}\u{ffff}";
    let axis = || Axis::log2(name, Unit::Bytes);
    let mut plot = Plot::new(name, axis(), axis());
    plot.add(Series::line(name).points([(1.0, 1.0), (2.0, f64::NAN)]));
    let text = plot.render(&PLAIN);
    let moves = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(moves), "{text:?}");
    let text = svg(&[plot]);
    let document = Document::parse(&text).expect("XML");
    let shown = "<b>&amp; \"it's\" ]]>  [2J  \u{fffd}";
    let texts = document.descendants().filter(|node| node.is_text());
    let texts: Vec<&str> = texts.filter_map(|node| node.text()).collect();
    // Titles of the document and of the plot, what is shown as its title, and the legend.
    let times = texts.iter().filter(|text| **text == shown).count();
    assert_eq!(times, 4, "{texts:?}");
}

/// Latency of two policies over time, with a bound and a stretch, and names at the lines' ends.
fn named_lines() -> Plot {
    let time = Axis::linear("time", Unit::Seconds);
    let mut plot = Plot::new("Latency", time, Axis::log10("p99", Unit::Nanos));
    for (name, after) in [("ours", 1.02e6), ("theirs", 1.0e6)] {
        let points = [(0.0, 1e6), (5.0, 4e6), (10.0, after)];
        plot.add(Series::line(name).points(points).unmarked());
    }
    plot.level(20e6, "bound")
        .stretch(4.0, 12.0, "neighbour")
        .labelled();
    plot
}

#[test]
fn names_at_the_ends_of_lines_are_apart_and_replace_the_legend() {
    let text = svg(&[named_lines()]);
    let document = Document::parse(&text).expect("XML");
    let labels: Vec<(&str, f64)> = (document.descendants().filter(has_class("label")))
        .map(|node| {
            let y = node.attribute("y").and_then(|y| y.parse().ok());
            (node.text().expect("a name"), y.expect("a number"))
        })
        .collect();
    let [(above, high), (below, low)] = labels[..] else {
        panic!("{labels:?}");
    };
    assert_eq!((above, below), ("ours", "theirs"));
    assert!(low - high >= LINE_HEIGHT, "{labels:?}");
    for name in ["ours", "theirs", "bound", "neighbour"] {
        assert_eq!(
            text.matches(&format!(">{name}</text>")).count(),
            1,
            "{name}"
        );
    }
    let described = document
        .descendants()
        .find(|node| node.has_tag_name("desc"));
    let described = described
        .and_then(|node| node.text())
        .expect("a description");
    let expected = "Level \"bound\" at 20 ms. Stretch \"neighbour\" from 4 to 12.";
    assert!(described.ends_with(expected), "{described}");
}

#[test]
fn a_level_and_a_stretch_are_within_the_axes() {
    let text = svg(&[named_lines()]);
    let document = Document::parse(&text).expect("XML");
    let one = |class: &str| {
        document
            .descendants()
            .find(has_class(class))
            .expect("there is one")
    };
    let number = |node: roxmltree::Node<'_, '_>, name: &str| -> f64 {
        node.attribute(name)
            .and_then(|value| value.parse().ok())
            .expect("a number")
    };
    let stretch = one("stretch");
    let (from, width) = (number(stretch, "x"), number(stretch, "width"));
    // The axis reaches to the end of the stretch: 8 of its 12 s are shaded.
    let frame = coordinates(one("frame").attribute("d").expect("a path"));
    let left = frame
        .iter()
        .map(|point| point.0)
        .fold(f64::INFINITY, f64::min);
    assert!(
        ((from - left) / width - 0.5).abs() < 0.05,
        "{from} {width} {left}"
    );
    let level = coordinates(one("level").attribute("d").expect("a path"));
    let top = number(stretch, "y");
    assert!(
        level[0].1 > top && level[0].1 < top + FRAME_HEIGHT,
        "{level:?}"
    );
    let drawn = named_lines().render(&ASCII);
    assert!(drawn.contains("bound"), "{drawn}");
    assert!(
        drawn.contains("neighbour: time (s) from 4 to 12"),
        "{drawn}"
    );
}

#[test]
fn several_plots_are_one_document_with_descriptions_for_screen_readers() {
    let text = svg(&[profile(), profile()]);
    let document = Document::parse(&text).expect("XML");
    let is_image = |node: &roxmltree::Node<'_, '_>| node.attribute("role") == Some("img");
    let groups: Vec<_> = document.descendants().filter(is_image).collect();
    assert_eq!(groups.len(), 2);
    for group in groups {
        let mut children = group.children().filter(|node| node.is_element());
        let mut next = || {
            children
                .next()
                .and_then(|n| Some((n.tag_name().name(), n.text()?)))
        };
        assert_eq!(next(), Some(("title", "Random reads")));
        assert_eq!(
            next(),
            Some((
                "desc",
                "Across: request size (bytes), logarithmic, with ticks at 4K, 8K, 16K, 32K, \
                 64K, 128K, 256K, 512K, 1M. Up: IOPS, logarithmic, with ticks at 200, 500, 1k, 2k, \
                 5k, 10k, 20k. Line \"measured\" of 9 points. Marks \"estimated\" of 5 points."
            ))
        );
    }
}

#[test]
fn a_cumulative_distribution_has_room_for_its_last_percents_and_its_bound() {
    let x = Axis::log10("latency", Unit::Nanos);
    let mut plot = Plot::new("CDF", x, Axis::nines("answered within"));
    plot.compact();
    let points = [
        (1e5, 0.0),
        (1e6, 90.0),
        (1e7, 99.0),
        (1e8, 99.9),
        (1e9, 100.0),
    ];
    plot.add(Series::line("reads").points(points).unmarked());
    plot.threshold(3e7, "promised: 30 ms");
    let text = svg(&[plot.clone()]);
    let document = Document::parse(&text).expect("XML");
    let line = document.descendants().find(has_class("line"));
    let line = coordinates(line.and_then(|it| it.attribute("d")).expect("a path"));
    // Each of the nines is as high as the one before; 100 % is out of the scale.
    assert_eq!(line.len(), 4);
    let rise = |n: usize| line[n].1 - line[n + 1].1;
    assert!((rise(0) - rise(1)).abs() <= ROUNDING && (rise(1) - rise(2)).abs() <= ROUNDING);
    assert!(text.contains("1 point outside of the scale"), "{text}");
    let level = document.descendants().find(has_class("level"));
    let bound = coordinates(level.and_then(|it| it.attribute("d")).expect("a path"))[0].0;
    assert!(line[2].0 < bound && bound < line[3].0, "{bound} {line:?}");
    for tick in [">50<", ">90<", ">99<", ">99.9<"] {
        assert!(text.contains(tick), "{tick}");
    }
    assert!(
        plot.render(&ASCII)
            .contains("promised: 30 ms: latency at 30 ms")
    );
}

#[test]
fn names_of_levels_near_each_other_are_at_different_ends() {
    let mut plot = Plot::new(
        "Rates",
        Axis::linear("time", Unit::Seconds),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    plot.add(Series::line("served").points([(0.0, 100.0), (10.0, 110.0)]));
    plot.level(100.0, "reservation").level(102.0, "target");
    plot.level(20.0, "floor");
    let text = svg(&[plot]);
    let document = Document::parse(&text).expect("XML");
    let names = document.descendants().filter(has_class("aside"));
    let at_end: Vec<_> = names
        .map(|node| (node.text(), node.attribute("text-anchor") == Some("end")))
        .collect();
    assert_eq!(
        at_end,
        [
            (Some("floor"), false),
            (Some("reservation"), false),
            (Some("target"), true)
        ]
    );
}

/// Returns the part of a plot's text between the axes.
fn canvas(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("--"));
    let drawn = lines.filter_map(|line| line.split_once(['│', '┤', '|', '+']));
    drawn.map(|(_, drawn)| drawn).collect()
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a predicate of elements with a class.
fn has_class(class: &str) -> impl Fn(&roxmltree::Node<'_, '_>) -> bool {
    move |node| {
        let classes = node.attribute("class").unwrap_or_default();
        classes.split(' ').any(|has| has == class)
    }
}

type Kind = fn(&'static str, Unit) -> Axis;

/// Returns a strategy for axes, with true for logarithmic ones.
fn any_axis() -> impl Strategy<Value = (Axis, bool)> {
    let units = [
        Unit::Number,
        Unit::Bytes,
        Unit::BytesPerS,
        Unit::Percent,
        Unit::Nanos,
        Unit::Seconds,
    ];
    let kinds: [(Kind, bool); 3] = [
        (Axis::linear, false),
        (Axis::log2, true),
        (Axis::log10, true),
    ];
    let labels = ["time", "", "a label that is quite long, 长, and goes on"];
    (
        proptest::sample::select(units.to_vec()),
        proptest::sample::select(kinds.to_vec()),
        proptest::sample::select(labels.to_vec()),
    )
        .prop_map(|(unit, (kind, is_log), label)| (kind(label, unit), is_log))
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 0.0..1e6,
        2 => any::<f64>(),
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(7.0),
        1 => prop_oneof![Just(f64::MAX), Just(f64::MIN), Just(f64::MIN_POSITIVE)],
    ]
}

/// Coordinates of a point, and the ends of its interval.
type RawPoint = (f64, f64, Option<(f64, f64)>);

/// Data of a series before it is fitted to axes.
#[derive(Clone, Debug)]
struct RawSeries {
    points: Vec<RawPoint>,
    joined: bool,
    band: bool,
}

fn any_series() -> impl Strategy<Value = RawSeries> {
    let interval = proptest::option::weighted(0.3, (any_value(), any_value()));
    let point = (any_value(), any_value(), interval).boxed();
    let points = prop_oneof![
        proptest::collection::vec(point.clone(), 0..5),
        proptest::collection::vec(point, 0..200),
        // All the same.
        (any_value(), any_value()).prop_map(|(x, y)| vec![(x, y, None); 3]),
    ];
    (points, any::<bool>(), any::<bool>()).prop_map(|(points, joined, band)| RawSeries {
        points,
        joined,
        band,
    })
}

fn plot_of(x: Axis, y: Axis, raw: &[RawSeries]) -> Plot {
    let mut plot = Plot::new("Whatever there is", x, y);
    for (i, raw) in raw.iter().enumerate() {
        let kind = if raw.joined {
            Series::line
        } else {
            Series::marks
        };
        let series = kind(format!("s{i}"));
        let series = if raw.band { series.band() } else { series };
        plot.add(series.points(raw.points.iter().map(|&(x, y, interval)| {
            let point = Point::new(x, y);
            interval.map_or(point, |(low, high)| point.between(low, high))
        })));
    }
    plot
}

/// Returns true if an axis has a position for a value.
fn has_place(value: f64, is_log: bool) -> bool {
    value.is_finite() && (value > 0.0 || !is_log)
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').expect("a code").1
    })
}

/// Returns the absolute coordinates in a path.
fn coordinates(path: &str) -> Vec<(f64, f64)> {
    let mut places = Vec::new();
    let (mut x, mut y) = (0.0, 0.0);
    for (at, command) in path.match_indices(['M', 'L', 'V', 'H']) {
        let rest = &path[at + 1..];
        let is_end = |c: char| c.is_ascii_alphabetic() || c == '-';
        let end = rest.find(is_end).unwrap_or(rest.len());
        let numbers = rest[..end].split(' ').map(|n| n.parse().expect("a number"));
        let numbers: Vec<f64> = numbers.collect();
        match command {
            "V" => y = numbers[0],
            "H" => x = numbers[0],
            _ => (x, y) = (numbers[0], numbers[1]),
        }
        places.push((x, y));
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn text_keeps_within_the_terminal_and_shows_every_series(
        ((x, x_log), (y, y_log)) in (any_axis(), any_axis()),
        raw in proptest::collection::vec(any_series(), 0..12),
        (width, height) in (0..160_usize, 0..40_usize),
    ) {
        let plot = plot_of(x, y, &raw);
        let screen = Screen { width, height, ..PLAIN };
        let text = plot.render(&screen);
        for line in text.lines() {
            prop_assert!(line.width() <= width.max(24), "{line:?}");
            prop_assert!(!line.ends_with(' '), "{line:?}");
        }
        let ascii = plot.render(&Screen { glyphs: Glyphs::Ascii, ..screen });
        prop_assert!(ascii.is_ascii(), "{ascii}");
        let coloured = plot.render(&Screen { style: Style::Colour, ..screen });
        prop_assert_eq!(&without_colours(&coloured), &text);

        let drawn = canvas(&text);
        let shown_words = words(&text);
        for (i, raw) in raw.iter().enumerate() {
            let mark = "●▲■◆○△□◇ABCD".chars().nth(i).expect("enough marks");
            let shows = |p: &&RawPoint| has_place(p.0, x_log) && has_place(p.1, y_log);
            let (shown, rest): (Vec<_>, Vec<_>) = raw.points.iter().partition(shows);
            let is_there = drawn.contains([mark, '*']);
            prop_assert!(is_there || shown.is_empty(), "{mark} in\n{text}");
            prop_assert!(!drawn.contains(mark) || !shown.is_empty(), "{mark} in\n{text}");

            let is_not_finite = |p: &&&RawPoint| !(p.0.is_finite() && p.1.is_finite());
            let infinite = rest.iter().filter(is_not_finite).count();
            for (n, why) in [
                (infinite, "not finite"),
                (rest.len() - infinite, "at 0 or below on a logarithmic axis"),
            ] {
                let plural = if n == 1 { "" } else { "s" };
                let note = format!("{n} point{plural} {why}");
                prop_assert!(n == 0 || shown_words.contains(&note), "{note} of s{i} in\n{text}");
            }
            let mut intervals = shown.iter().filter_map(|point| point.2);
            let is_bad = |(a, b)| !(has_place(a, y_log) && has_place(b, y_log));
            let expected = !rest.is_empty() || intervals.any(is_bad);
            let note = format!("left out of \"s{i}\":");
            prop_assert_eq!(shown_words.contains(&note), expected, "{} in\n{}", note, text);
        }
    }

    #[test]
    fn a_document_is_valid_and_holds_every_point_within_its_frame(
        ((x, x_log), (y, y_log)) in (any_axis(), any_axis()),
        raw in proptest::collection::vec(any_series(), 0..12),
    ) {
        let plot = plot_of(x, y, &raw);
        let text = svg(std::slice::from_ref(&plot));
        prop_assert_eq!(&text, &svg(&[plot]));
        let document = Document::parse(&text).expect("XML");
        for node in document.descendants().filter(|node| node.is_element()) {
            let known = ["svg", "g", "title", "desc", "style", "rect", "path", "text"];
            prop_assert!(known.contains(&node.tag_name().name()), "{node:?}");
            prop_assert!(node.attribute("href").is_none() && node.attribute("id").is_none());
        }
        let unfilled = text.contains(".tidegate-plot path{fill:none}");
        prop_assert!(unfilled);
        prop_assert!(!text.contains("url(") && !text.contains("@import"));

        let frame = document.descendants().find(has_class("frame"));
        let frame = frame.and_then(|n| n.attribute("d")).map(coordinates);
        let [(left, top), _, (right, bottom)] = frame.expect("a frame")[..] else {
            panic!("a frame is two edges");
        };
        let svg = document.root_element();
        let height = svg.attribute("height").and_then(|height| height.parse::<f64>().ok());
        let height = height.expect("a height");
        for node in document.descendants().filter(|n| n.has_tag_name("text")) {
            let y = node.attribute("y").and_then(|y| y.parse::<f64>().ok());
            prop_assert!(y.is_some_and(|y| y < height), "{node:?}");
        }
        let mut marks = 0;
        for node in document.descendants().filter(|n| n.has_tag_name("path")) {
            let path = node.attribute("d").expect("a path");
            for (x, y) in coordinates(path) {
                // The ends of error bars are six wide.
                let within = (left - 3.0..=right + 3.0).contains(&x);
                let in_frame = (top..=bottom).contains(&y);
                // The legend is beneath.
                prop_assert!(within && (in_frame || y > bottom + X_NAME_BASELINE), "{path}");
            }
            let class = node.attribute("class").unwrap_or_default();
            // A line that is filled would hide what it goes around.
            prop_assert!(!has_class("line")(&node) || !class.contains('f'), "{class}");
            if class.starts_with('s') && class.contains(" f") {
                marks += coordinates(path).len();
            }
        }
        if raw.iter().all(|raw| !raw.joined) {
            let points = raw.iter().flat_map(|raw| &raw.points);
            let shows = |p: &&RawPoint| has_place(p.0, x_log) && has_place(p.1, y_log);
            // Each, and the legend's.
            prop_assert_eq!(marks, points.filter(shows).count() + raw.len());
        }
    }
}
