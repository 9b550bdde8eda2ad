//! Weaves all mutants of a file into it: each function holds its own body and those of its mutants,
//! and a variable of the process selects one. So one build serves all mutants.
//!
//! ```text
//! fn f(…) -> R { match crate::woven_mutants::at(FUNCTION) {
//! 17u32 => {…the body with mutant 17…}
//! 18u32 => {…}
//! _ => {…the body…}
//! } }
//! ```
//!
//! `at` also notes, if asked, that the function was reached: a test that does not reach it cannot
//! notice its mutants. A mutant that does not compile is found by the lines of its arm, which
//! [`Woven`] remembers, and left out. A `const fn` is not woven, because it cannot read a variable,
//! and neither is a function that is generic over `impl Trait` in its result if its arms differ in
//! type: the compiler says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::list::Mutant;

/// The file of a crate that [`SUPPORT`] is added to.
pub const CRATE_ROOT: &str = "src/lib.rs";

/// The module that each woven crate gets.
pub const SUPPORT: &str = r#"
#[allow(warnings, clippy::all)]
mod woven_mutants {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static ACTIVE: OnceLock<u32> = OnceLock::new();
    static REACHED: [AtomicBool; FUNCTIONS] = [const { AtomicBool::new(false) }; FUNCTIONS];

    #[inline]
    pub(crate) fn at(function: usize) -> u32 {
        if !REACHED[function].load(Relaxed) {
            reach(function);
        }
        *ACTIVE.get_or_init(active)
    }

    #[cold]
    fn active() -> u32 {
        std::env::var("SHAMBA_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
    }

    #[cold]
    fn reach(function: usize) {
        if !REACHED[function].swap(true, Relaxed) && let Some(path) = std::env::var_os("SHAMBA_MUTANTS_REACHED") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!("{function}\n").as_bytes()));
        }
    }
}
"#;

/// The place of a mutant in the woven file: lines from 1, both ends included.
#[derive(Debug)]
pub struct Arm {
    pub mutant: usize,
    pub lines: (usize, usize),
}

/// A woven file.
#[derive(Debug, Default)]
pub struct Woven {
    pub text: String,
    pub arms: Vec<Arm>,
    /// The lines of each woven function and its number.
    pub functions: Vec<(usize, (usize, usize))>,
}

/// A function with the mutants in it, by their number in the list.
struct Function {
    range: Range<usize>,
    mutants: Vec<usize>,
}

/// Weaves those of `mutants`, which are all of one file, whose numbers are in `chosen`. The next
/// function gets the number `functions`, which is counted up. Returns the mutants that cannot be
/// woven as well.
pub fn weave(
    text: &str,
    mutants: &[(usize, &Mutant)],
    chosen: &BTreeSet<usize>,
    functions: &mut usize,
) -> (Woven, Vec<usize>) {
    let mut left_out = Vec::new();
    let mut by_function: BTreeMap<usize, Function> = BTreeMap::new();
    let outermost = |range: &Range<usize>| {
        let all = mutants.iter().filter_map(|(_, mutant)| mutant.function.clone());
        let around = all.filter(|other| other.start <= range.start && range.end <= other.end);
        around.max_by_key(|other| other.len()).unwrap_or_else(|| range.clone())
    };
    for (number, mutant) in mutants.iter().filter(|(number, _)| chosen.contains(number)) {
        let Some(range) = mutant.function.as_ref().map(&outermost) else {
            left_out.push(*number);
            continue;
        };
        let entry = by_function.entry(range.start);
        entry.or_insert_with(|| Function { range, mutants: Vec::new() }).mutants.push(*number);
    }
    let mutant_of: BTreeMap<usize, &Mutant> = mutants.iter().copied().collect();
    let mut woven = Woven::default();
    let mut end = 0;
    for function in by_function.values() {
        let Some(body) = body_of(text, &function.range) else {
            left_out.extend(&function.mutants);
            continue;
        };
        let inside = |number: &usize| {
            let place = &mutant_of[number].place;
            body.start <= place.start && place.end <= body.end
        };
        woven.text.push_str(&text[end..body.start]);
        let first = woven.lines();
        woven.text.push_str(&format!("{{ match crate::woven_mutants::at({functions}) {{\n"));
        for number in &function.mutants {
            if !inside(number) {
                left_out.push(*number);
                continue;
            }
            let mutant = mutant_of[number];
            let begin = woven.lines();
            let (before, after) = (&text[body.start..mutant.place.start], &text[mutant.place.end..body.end]);
            woven.text.push_str(&format!("{number}u32 => {before}{}{after}\n", mutant.replacement));
            woven.arms.push(Arm { mutant: *number, lines: (begin, woven.lines() - 1) });
        }
        woven.text.push_str(&format!("_ => {}\n}} }}", &text[body.clone()]));
        woven.functions.push((*functions, (first, woven.lines())));
        *functions += 1;
        end = body.end;
    }
    woven.text.push_str(&text[end..]);
    (woven, left_out)
}

impl Woven {
    /// The line that the next character is in.
    fn lines(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

/// The body of a function with its braces: from the first brace outside of parentheses. `None` for
/// a `const fn`.
fn body_of(text: &str, function: &Range<usize>) -> Option<Range<usize>> {
    let source = text.get(function.clone())?;
    let mut depth = 0i32;
    let open = source.char_indices().find(|(_, letter)| {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        *letter == '{' && depth == 0
    });
    let (open, _) = open?;
    let signature = source.get(..open)?;
    let is_const = signature.split_whitespace().take_while(|word| *word != "fn").any(|word| word == "const");
    (!is_const && source.ends_with('}')).then(|| function.start + open..function.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(text: &str, (what, replacement): (&str, &str), function: &str) -> Mutant {
        let at = |part: &str| text.find(part).map(|start| start..start + part.len()).expect("in the text");
        Mutant {
            file: "a.rs".into(),
            name: what.into(),
            place: at(what),
            replacement: replacement.into(),
            function: Some(at(function)),
            text_hash: 0,
        }
    }

    #[test]
    fn a_function_holds_its_body_and_those_of_its_mutants() {
        let function = "fn f(a: [u8; 2]) -> u8 {\n    a[0] + 1\n}";
        let text = format!("// before\n{function}\n// behind\n");
        let of = [mutant(&text, ("+", "-"), function), mutant(&text, ("a[0] + 1", "0"), function)];
        let numbered = [(3, &of[0]), (4, &of[1])];
        let mut functions = 7;
        let (woven, left_out) = weave(&text, &numbered, &BTreeSet::from([3, 4]), &mut functions);
        let expected = "// before\nfn f(a: [u8; 2]) -> u8 { match crate::woven_mutants::at(7) {\n\
                        3u32 => {\n    a[0] - 1\n}\n4u32 => {\n    0\n}\n_ => {\n    a[0] + 1\n}\n} }\n// behind\n";
        assert_eq!((woven.text.as_str(), left_out, functions), (expected, Vec::new(), 8));
        let lines: Vec<_> = woven.arms.iter().map(|arm| (arm.mutant, arm.lines)).collect();
        assert_eq!((lines, woven.functions), (vec![(3, (3, 5)), (4, (6, 8))], vec![(7, (2, 12))]));
    }

    #[test]
    fn a_const_function_is_left_out_and_a_nested_one_is_part_of_the_outer() {
        let text = "pub const fn a() -> u8 { 1 }\nfn b() { fn c() -> u8 { 2 } c(); let d = 3; }";
        let of = [
            mutant(text, ("1", "0"), "pub const fn a() -> u8 { 1 }"),
            mutant(text, ("2", "0"), "fn c() -> u8 { 2 }"),
            mutant(text, ("3", "0"), "fn b() { fn c() -> u8 { 2 } c(); let d = 3; }"),
        ];
        let numbered: Vec<(usize, &Mutant)> = of.iter().enumerate().collect();
        let mut functions = 0;
        let (woven, left_out) = weave(text, &numbered, &BTreeSet::from([0, 1, 2]), &mut functions);
        assert_eq!((left_out, functions, woven.arms.len()), (vec![0], 1, 2));
        assert!(woven.text.contains("1u32 => { fn c() -> u8 { 0 } c(); let d = 3; }"), "{}", woven.text);
    }
}
