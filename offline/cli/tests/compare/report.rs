//! The report of a comparison: what it says without a network, and what a real browser makes of it.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// A name that would end the script it stands in, open a tag, end an attribute.
const HOSTILE: &str = "Functional.</script><img src=x onerror=\"document.title='broken'\">'&amp;.0.forward";
const FRAME: &str = "File \"</script><script>document.title='broken'</script>\", line 1, in <module>";

/// Compares and gives the printed sentence and the report.
fn compare(target: &Path, golden: &Path, output: &Path, more: &[&str]) -> (String, PathBuf) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainmon"));
    let run = command.arg("compare").args([target, golden]).arg("-o").arg(output).args(more).output().unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "html");
    let named = printed.lines().map(|line| PathBuf::from(line.trim())).find(is_page);
    let report = named.unwrap_or_else(|| panic!("no report: {printed}{}", String::from_utf8_lossy(&run.stderr)));
    (printed.lines().next().unwrap().to_owned(), report)
}

fn tensor(max: f64) -> Value {
    json!({
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 8], "Max": max, "Min": -max, "Mean": 0.25 * max,
        "Norm": 3.0 * max, "requires_grad": false
    })
}

/// A step of one rank: each operator takes what the one before gave, and `change` comes upon what the operators from
/// `from` on give.
fn dump(directory: &Path, operators: &[String], from: usize, change: f64) {
    let directory = directory.join("step0/rank");
    std::fs::create_dir_all(&directory).unwrap();
    let value = |index: usize| (index as f64 + 1.0) * 0.5 * if index > from { 1.0 + change } else { 1.0 };
    let (mut data, mut stacks, mut construct) = (Map::new(), Map::new(), Map::new());
    for (index, name) in operators.iter().enumerate() {
        let (input, output) = (tensor(value(index)), tensor(value(index + 1)));
        data.insert(name.clone(), json!({"input_args": [input], "input_kwargs": {}, "output": [output]}));
        let line = if change > 0.0 { "File model.py, line 7" } else { "File model.py, line 8" };
        stacks.insert(index.to_string(), json!([[name], [FRAME, line]]));
        construct.insert(name.clone(), json!(format!("Module.blocks.{}.Block.forward.0", index % 3)));
    }
    let document =
        json!({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": data});
    let files = [("dump.json", document), ("stack.json", Value::from(stacks)), ("construct.json", construct.into())];
    for (name, content) in files {
        std::fs::write(directory.join(name), content.to_string()).unwrap();
    }
}

/// Two runs of many operators that part at a layer norm, and at an operator with a hostile name before it if asked to.
fn runs(root: &Path, operators: usize, parting: usize) -> (PathBuf, PathBuf) {
    let name = |index: usize| match index {
        1 => HOSTILE.to_owned(),
        _ if index.is_multiple_of(2) => format!("Functional.layer_norm.{}.forward", index / 2),
        _ => format!("Functional.linear.{}.forward", index / 2),
    };
    let operators: Vec<String> = (0..operators).map(name).collect();
    let (target, golden) = (root.join("target"), root.join("golden"));
    dump(&target, &operators, parting, 0.5);
    dump(&golden, &operators, parting, 0.0);
    (target, golden)
}

/// The text between two marks.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).map_or("", |(inside, _)| inside)
}

fn unescaped(html: &str) -> String {
    let html = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    html.replace("&amp;", "&")
}

/// What holds for every report: it asks nobody for anything, and nothing in it is a tag but its own.
fn assert_self_contained(page: &str) {
    assert!(page.contains("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"));
    for outside in ["://", "@import", "url(", "<link", "<iframe"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for (tag, count) in [("<script", 2), ("</script", 2), ("<img", 0), ("<style", 1)] {
        assert_eq!(page.matches(tag).count(), count, "{tag}");
    }
}

/// A case of the corpus, and the golden that is a link in it.
fn unpack(case: &str, golden: &str, to: &Path) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration-tests/faults/corpus.tar.gz");
    let mut corpus = tar::Archive::new(flate2::read::GzDecoder::new(File::open(corpus).unwrap()));
    for entry in corpus.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap();
        if path.starts_with(case) || path.starts_with(Path::new("goldens").join(golden)) {
            entry.unpack_in(to).unwrap();
        }
    }
    to.join(case)
}

/// A row of the page's data, its cells as the page's script reads them.
struct PageRow {
    ulps: String,
    cells: Vec<String>,
}

/// The rows of one of the data's tables.
fn rows_of(data: &Value, table: &Value) -> Vec<PageRow> {
    let text = |number: &str| data["texts"][number.parse::<usize>().unwrap()].as_str().unwrap().to_owned();
    let rows = table["rows"].as_array().unwrap().iter().map(|row| {
        let mut parts = row.as_str().unwrap().split('\x7f').skip(1);
        let ulps = parts.next().unwrap().to_owned();
        let mut cells: Vec<String> = Vec::new();
        for part in parts {
            cells.push(match (part, part.strip_prefix('@'), part.strip_prefix('=')) {
                ("=", ..) => cells.last().unwrap().clone(),
                (_, Some(number), _) => text(number),
                (.., Some(rest)) => rest.to_owned(),
                _ => part.to_owned(),
            });
        }
        assert_eq!(cells.len(), table["headers"].as_array().unwrap().len());
        PageRow { ulps, cells }
    });
    rows.collect()
}

/// What the page's script is given.
fn data(page: &str) -> Value {
    serde_json::from_str(between(page, "id=\"data\">", "</script>")).unwrap()
}

/// The heading as it is printed: code is in backticks.
fn heading(page: &str) -> String {
    let shown = between(page, "<h1>", "</h1>").replace("<code>", "`").replace("</code>", "`");
    unescaped(&shown)
}

#[test]
fn the_report_says_what_is_printed_and_asks_nobody() {
    let unpacked = tempfile::tempdir().unwrap();
    let case = unpack("forward_all_reduce_corrupted_on_rank1", "tp-ranks2", unpacked.path());
    let (sentence, report) = compare(&case.join("target"), &case.join("golden"), &unpacked.path().join("out"), &[]);
    let page = std::fs::read_to_string(report).unwrap();
    assert_self_contained(&page);
    assert_eq!(heading(&page), sentence);
    assert!(sentence.starts_with("First divergence: "), "{sentence}");
    for part in ["<h2>Differing values</h2>", "<h2>Chain</h2>", "<h2>Size of differences</h2>"] {
        assert!(page.contains(part), "{part}");
    }
    let data = data(&page);
    let kept: usize = data["tables"].as_array().unwrap().iter().map(|table| rows_of(&data, table).len()).sum();
    let counted: u64 = data["counts"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    let mut tables = walk(&unpacked.path().join("out"));
    tables.sort();
    let written: usize = tables.iter().map(|path| csv::Reader::from_path(path).unwrap().records().count()).sum();
    assert!(kept > 100 && kept == written && kept as u64 == counted, "{kept} rows, {written} in the tables, {counted}");
    // Each shared text is there once.
    let texts = data["texts"].as_array().unwrap();
    let different: std::collections::HashSet<&str> = texts.iter().filter_map(Value::as_str).collect();
    assert_eq!(different.len(), texts.len());
    // Cell for cell what the CSV files have, but for the blank that these put before an infinity, NaN's spelling and stacks.
    let mut records = tables.iter().flat_map(|path| {
        let records = csv::Reader::from_path(path).unwrap().into_records();
        records.map(|record| record.unwrap().iter().map(str::to_owned).collect::<Vec<_>>())
    });
    let mut compared = 0;
    for table in data["tables"].as_array().unwrap() {
        let stack = table["headers"].as_array().unwrap().iter().position(|header| header == "NPU_Stack_Info");
        for (row, record) in rows_of(&data, table).into_iter().zip(&mut records) {
            for (column, (cell, written)) in row.cells.iter().zip(&record).enumerate() {
                assert!(
                    cell == written.trim_start() || (cell == "nan" && written == "Nan") || Some(column) == stack,
                    "{cell} in the page, {written} in the table"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "{compared} cells");
}

/// The CSV files below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "csv")).collect()
}

#[test]
fn no_name_and_no_frame_gets_out_of_its_place() {
    let root = tempfile::tempdir().unwrap();
    let (target, golden) = runs(root.path(), 6, 1);
    let (sentence, report) = compare(&target, &golden, &root.path().join("out"), &["--format", "html"]);
    assert!(sentence.contains(HOSTILE), "{sentence}");
    let page = std::fs::read_to_string(report).unwrap();
    assert_self_contained(&page);
    assert_eq!(heading(&page), sentence);
    let data = data(&page);
    assert!(data["tables"][0]["operators"].as_array().unwrap().contains(&json!(HOSTILE)));
    let stacks = between(&page, "<table class=\"stacks\">", "</table>");
    assert_eq!(unescaped(stacks).matches(FRAME).count(), 2);
    assert!(
        stacks.contains("<mark>File model.py, line 7</mark>") && stacks.contains("<mark>File model.py, line 8</mark>")
    );
}

/// Own lines stand out: frames of packages that are the same on both sides take one line, and what differs is marked.
#[test]
fn frames_of_packages_are_folded_and_the_line_that_differs_is_marked() {
    let root = tempfile::tempdir().unwrap();
    let (target, golden) = runs(root.path(), 6, 2);
    for (run, line) in [(&target, 7), (&golden, 8)] {
        let own = format!("File /home/me/model.py, line {line}, in forward, \n y = norm(x)");
        let package = |line| {
            format!("File /usr/lib/python3/site-packages/torch/nn/modules/module.py, line {line}, in _call_impl")
        };
        let frames = json!([own, package(1), package(2), package(3), "File /home/me/train.py, line 30, in main"]);
        let stacks: Map<String, Value> = (0..3)
            .map(|at| (at.to_string(), json!([[format!("Functional.layer_norm.{at}.forward")], frames])))
            .collect();
        std::fs::write(run.join("step0/rank/stack.json"), Value::from(stacks).to_string()).unwrap();
    }
    let (_, report) = compare(&target, &golden, &root.path().join("out"), &["--format", "html"]);
    let page = std::fs::read_to_string(report).unwrap();
    let stacks = between(&page, "<table class=\"stacks\">", "</table>");
    assert!(stacks.contains("3 frames of torch and other packages, the same on both sides"), "{stacks}");
    assert_eq!(stacks.matches("<tr class=\"folded\">").count(), 1, "{stacks}");
    assert_eq!(stacks.matches("<mark>").count(), 2, "the own line, on both sides: {stacks}");
    assert!(stacks.contains("<td>File /home/me/train.py, line 30, in main</td>"), "{stacks}");
    assert!(page.contains("The stacks differ in 1 line."));
}

#[test]
fn msprobes_spelling_writes_what_msprobe_writes() {
    let root = tempfile::tempdir().unwrap();
    let (target, golden) = runs(root.path(), 6, 1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainmon"));
    let output = root.path().join("out");
    command.arg("compare").arg("-tp").arg(&target).arg("-gp").arg(&golden).arg("-o").arg(&output);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let names: Vec<PathBuf> = std::fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [output.join("step0")]);
}

#[test]
fn elements_are_counted_by_units_in_the_last_place() {
    let unpacked = tempfile::tempdir().unwrap();
    let case = unpack("layer_norm_in_fp16_tensor", "mlp-tensor", unpacked.path());
    let (golden, output) = (case.join("golden"), unpacked.path().join("out"));
    let (_, report) = compare(&case.join("target"), &golden, &output, &["--format", "html"]);
    let data = data(&std::fs::read_to_string(report).unwrap());
    let table = &data["tables"][0];
    let headers = table["headers"].as_array().unwrap();
    let shape = headers.iter().position(|header| header == "NPU Tensor Shape").unwrap();
    let (mut counted, mut apart) = (0, 0);
    for row in rows_of(&data, table) {
        let counts: Vec<u64> = row.ulps.split_whitespace().map(|count| count.parse().unwrap()).collect();
        if !counts.is_empty() {
            let sizes: Vec<u64> = serde_json::from_str(&row.cells[shape]).unwrap();
            assert_eq!(counts.iter().sum::<u64>(), sizes.iter().product::<u64>());
            counted += 1;
            apart += usize::from(counts.len() > 1);
        }
    }
    assert!(counted > 50 && (1..counted).contains(&apart), "{counted} tensors, {apart} of them apart");
}

#[test]
fn a_comparison_that_fails_leaves_no_report() {
    let root = tempfile::tempdir().unwrap();
    let (target, golden) = runs(root.path(), 6, 1);
    for run in [&target, &golden] {
        std::fs::create_dir_all(run.join("step1/rank")).unwrap();
        std::fs::write(run.join("step1/rank/dump.json"), "{\"task\": ").unwrap();
    }
    let output = root.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainmon"));
    let run = command.arg("compare").args([&target, &golden]).arg("-o").arg(&output).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(!output.exists(), "nothing is left, not even the directory");
}

/// A Chromium on PATH that opens files; one in a cage of its own may not see those of a test.
fn chromium(room: &Path) -> Option<&'static str> {
    let page = room.join("probe.html");
    std::fs::write(&page, "<!doctype html><p>a file was opened</p>").unwrap();
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|run| run.status.success());
    let names = ["chromium", "chromium-browser", "google-chrome"].into_iter().filter(runs);
    names.into_iter().find(|name| browse(name, &page, "").is_ok_and(|document| document.contains("a file was opened")))
}

/// The document as a browser has it after the page's script ran, or what it complains about.
fn browse(chromium: &str, page: &Path, fragment: &str) -> Result<String, String> {
    let room = tempfile::tempdir().unwrap();
    let (document, complaints) = (room.path().join("document"), room.path().join("complaints"));
    let mut browser = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--dump-dom", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", room.path().join("profile").display()))
        .arg(format!("file://{}{fragment}", page.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&document).unwrap())
        .stderr(File::create(&complaints).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_mins(3);
    let status = loop {
        if let Some(status) = browser.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            browser.kill().unwrap();
            break browser.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let complaints = std::fs::read_to_string(complaints).unwrap();
    let document = std::fs::read_to_string(document).unwrap();
    if status.success() && !document.is_empty() { Ok(document) } else { Err(format!("{status}: {complaints}")) }
}

/// Rows in the document: level and value of each.
fn rows(document: &str) -> Vec<(String, String)> {
    let cell = |row: &str, column: usize| {
        let cell = row.split("<td").nth(column + 1).unwrap_or("");
        unescaped(between(cell, ">", "</td>"))
    };
    document.split("<tr data-row=").skip(1).map(|row| (cell(row, 0), cell(row, 1))).collect()
}

#[test]
fn a_browser_draws_the_rows_in_sight_and_a_fragment_filters_them() {
    let root = tempfile::tempdir().unwrap();
    let Some(chromium) = chromium(root.path()) else {
        crate::skip("the report in a browser", "no chromium on PATH that opens files");
        return;
    };
    let (target, golden) = runs(root.path(), 1000, 11);
    let (_, report) = compare(&target, &golden, &root.path().join("out"), &["--format", "html"]);

    let document = browse(chromium, &report, "").unwrap();
    let all = rows(&document);
    assert!(between(&document, "<output id=\"count\"", "</output>").contains("2,000 of 2,000 rows"));
    assert!((10..200).contains(&all.len()), "{} rows are in the document", all.len());
    assert_eq!(all[0], ("pass".to_owned(), "Functional.layer_norm.0.forward.input.0".to_owned()));
    assert!(all.iter().any(|(_, value)| value.contains(HOSTILE)));
    assert!(!document.contains("<title>broken") && document.matches("<img").count() == 0);
    // Beside its number a value has the name of the argument and of the module.
    let first = between(&document, "<tr data-row=\"0\"", "</tr>");
    assert!(first.contains(">input</td>") && first.contains(">Module.blocks.0.Block.forward.0</td>"), "{first}");

    let document = browse(chromium, &report, "#q=layer_norm&level=error,warning&dir=forward&module=blocks.2").unwrap();
    let found = rows(&document);
    let count = between(&document, "<output id=\"count\"", "</output>");
    assert!(!count.contains(">2,000 of") && count.contains(" of 2,000 rows"), "{count}");
    assert!(!found.is_empty());
    for (level, value) in &found {
        assert!(level != "pass" && value.contains("layer_norm"), "{level} {value}");
    }

    // Where they part is a link to its rows.
    let link = unescaped(between(&document, "<h3><a href=\"", "\""));
    let part = browse(chromium, &report, &link).unwrap();
    let names: Vec<String> = rows(&part).into_iter().map(|(_, value)| value).collect();
    assert_eq!((names.len(), &*names[0]), (1, "Functional.linear.5.forward.output.0"), "{link}");

    // The fifth operator's second value, and with it the stack, which is told with the first.
    let document = browse(chromium, &report, "#q=nothing-has-this&row=9").unwrap();
    assert!(rows(&document).is_empty());
    let detail = unescaped(between(&document, "<aside id=\"detail\"", "</aside>"));
    assert!(detail.contains("Functional.layer_norm.2.forward.output.0") && detail.contains(FRAME), "{detail}");

    // A script that is none of the page's own does not run, whoever got it in there.
    let page = std::fs::read_to_string(&report).unwrap();
    let asked = root.path().join("asked.html");
    let act = |script: &str| page.replace("</body>", &format!("<script>{script}</script></body>"));
    std::fs::write(&asked, act("document.title = 'broken'")).unwrap();
    assert!(!browse(chromium, &asked, "").unwrap().contains("<title>broken"));

    // The reader asks for the first error, and the table goes there; then by the keyboard for the next and for the dark.
    let own = between(&page, "script-src ", ";");
    let keys =
        "const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));";
    let click = format!("{keys} document.getElementById('first').click(); press('t');");
    std::fs::write(&asked, act(&click).replacen(own, "'unsafe-inline'", 1)).unwrap();
    let document = browse(chromium, &asked, "").unwrap();
    let chosen = between(&document, "aria-selected=\"true\"", "</tr>");
    assert!(chosen.contains(">error<") && chosen.contains("Functional.linear.5.forward.output.0"), "{chosen}");
    assert!(
        between(&document, "<aside id=\"detail\"", "</aside>")
            .contains("<h3>Functional.linear.5.forward.output.0</h3>")
    );
    assert!(between(&document, "<html", ">").contains("data-theme=\"dark\""));
    let pressed = act(&format!("{keys} press('n');")).replacen(own, "'unsafe-inline'", 1);
    std::fs::write(&asked, pressed).unwrap();
    let document = browse(chromium, &asked, "").unwrap();
    assert!(between(&document, "aria-selected=\"true\"", "</tr>").contains("Functional.linear.5.forward.output.0"));
}

/// A page of many rows holds them packed, and a browser unpacks them.
#[test]
fn a_large_page_is_small_and_shows_its_rows_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (target, golden) = runs(root.path(), 20_000, 11);
    let (_, report) = compare(&target, &golden, &root.path().join("out"), &["--format", "html"]);
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("<script type=\"application/gzip\" id=\"data\">"));
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    let Some(chromium) = chromium(root.path()) else {
        crate::skip("the packed report in a browser", "no chromium on PATH that opens files");
        return;
    };
    let document = browse(chromium, &report, "#q=Functional.linear.5.forward.output.0").unwrap();
    let names: Vec<String> = rows(&document).into_iter().map(|(_, value)| value).collect();
    assert_eq!(names, ["Functional.linear.5.forward.output.0"]);
}

/// What the page measures of itself in a frame as narrow as a telephone, after it was driven.
const MEASURED: &str = "
    const sight = (element) => {
        const { top, bottom } = element.getBoundingClientRect();
        return bottom > 0 && top < innerHeight;
    };
    const search = document.getElementById('q');
    const chosen = () => document.querySelector('tr[aria-selected=true]');
    const look = () => [chosen()?.innerText.includes('error'), sight(chosen()), sight(document.querySelector('#detail h3'))].join();
    press('n');
    const next = look();
    press('p');
    const previous = look();
    const drawing = document.querySelector('svg.distribution');
    const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
    const letters = Math.min(...[...drawing.querySelectorAll('text')].map((text) => parseFloat(getComputedStyle(text).fontSize)));
    const isReadable = letters * scale >= 9 && document.documentElement.scrollWidth <= innerWidth;
    const before = document.getElementById('nothing').hidden;
    search.value = 'no-value-has-this';
    search.dispatchEvent(new Event('input', { bubbles: true }));
    setTimeout(() => {
        const nothing = document.getElementById('nothing');
        parent.postMessage({ next, previous, isReadable, letters, scale, width: innerWidth, wide: document.documentElement.scrollWidth,
            before, after: nothing.hidden ? '' : nothing.innerText }, '*');
    }, 600);
";

#[test]
fn on_a_narrow_screen_keys_lead_to_errors_with_their_details_in_sight_and_an_empty_search_says_so() {
    let root = tempfile::tempdir().unwrap();
    let Some(chromium) = chromium(root.path()) else {
        crate::skip("the narrow report in a browser", "no chromium on PATH that opens files");
        return;
    };
    let (target, golden) = runs(root.path(), 1000, 11);
    let (_, report) = compare(&target, &golden, &root.path().join("out"), &["--format", "html"]);
    let page = std::fs::read_to_string(&report).unwrap();
    let own = between(&page, "script-src ", ";");
    let press =
        "const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));";
    let driven = page.replace("</body>", &format!("<script>{press}{MEASURED}</script></body>"));
    std::fs::write(root.path().join("driven.html"), driven.replacen(own, "'unsafe-inline'", 1)).unwrap();
    let frame = root.path().join("frame.html");
    let around = "<!doctype html><script>onmessage = ({ data }) => document.body.append(JSON.stringify(data));</script>\
                  <body><iframe src=\"driven.html\" width=\"420\" height=\"760\"></iframe></body>";
    std::fs::write(&frame, around).unwrap();

    let document = browse(chromium, &frame, "").unwrap();
    let said = unescaped(between(&document, "</iframe>", "</body>"));
    let said: Value = serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&said["next"], &said["previous"]), (&"true,true,true".into(), &"true,true,true".into()), "{said}");
    assert_eq!(said["isReadable"], true, "{said}");
    assert_eq!((&said["before"], &said["after"]), (&true.into(), &"No row matches the search.".into()), "{said}");
}
