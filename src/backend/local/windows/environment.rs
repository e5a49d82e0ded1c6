//! From variables to the one block that Windows passes to a process.

/// A name and a value in UTF-16.
pub(super) type Variable = (Vec<u16>, Vec<u16>);

/// The block: `name=value` texts in the order of their upper-case names, each terminated, and one more terminator.
///
/// Names that differ in case only mean the same variable; the last one counts. Neither names nor values may hold a NUL.
pub(super) fn block(variables: &[Variable]) -> Vec<u16> {
    let mut sorted: Vec<(Vec<u16>, &Variable)> =
        variables.iter().map(|variable| (upper(&variable.0), variable)).collect();
    // Stable: of equal names the last one stays last.
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut block = Vec::new();
    for (index, (key, (name, value))) in sorted.iter().enumerate() {
        if sorted.get(index + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        block.extend_from_slice(name);
        block.push(u16::from(b'='));
        block.extend_from_slice(value);
        block.push(0);
    }
    if block.is_empty() {
        // An empty block has both terminators too.
        block.push(0);
    }
    block.push(0);
    block
}

/// The value of a variable by its name in ASCII, without regard to case.
pub(super) fn lookup<'a>(variables: &'a [Variable], name: &str) -> Option<&'a [u16]> {
    let name: Vec<u16> = name.encode_utf16().collect();
    variables.iter().rev().find(|(known, _)| equal_ignoring_ascii_case(known, &name)).map(|(_, value)| value.as_slice())
}

/// Whether two texts are equal but for the case of ASCII letters.
pub(super) fn equal_ignoring_ascii_case(a: &[u16], b: &[u16]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| ascii_upper(*a) == ascii_upper(*b))
}

fn ascii_upper(unit: u16) -> u16 {
    if (u16::from(b'a')..=u16::from(b'z')).contains(&unit) { unit - 32 } else { unit }
}

/// Unit by unit, as the system compares names: where the upper case is a single unit, that one, else the unit itself.
fn upper(name: &[u16]) -> Vec<u16> {
    name.iter()
        .map(|unit| {
            let Some(c) = char::from_u32(u32::from(*unit)) else { return *unit };
            let mut upper = c.to_uppercase();
            match (upper.next().map(|c| u16::try_from(u32::from(c))), upper.next()) {
                (Some(Ok(single)), None) => single,
                _ => *unit,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<Variable> {
        pairs.iter().map(|(name, value)| (name.encode_utf16().collect(), value.encode_utf16().collect())).collect()
    }

    fn text(pairs: &[(&str, &str)]) -> String {
        String::from_utf16(&block(&variables(pairs))).unwrap()
    }

    #[test]
    fn names_are_sorted_without_regard_to_case() {
        assert_eq!(text(&[("b", "1"), ("Path", "2"), ("PATHEXT", "3"), ("A", "4")]), "A=4\0b=1\0Path=2\0PATHEXT=3\0\0");
        // In order of the upper-case forms, `_` comes after the letters.
        assert_eq!(text(&[("_x", "1"), ("a", "2"), ("Z", "3")]), "a=2\0Z=3\0_x=1\0\0");
        assert_eq!(text(&[("éb", "2"), ("Éa", "1")]), "Éa=1\0éb=2\0\0");
    }

    #[test]
    fn of_names_that_differ_in_case_the_last_one_counts() {
        assert_eq!(text(&[("PATH", "1"), ("x", "2"), ("Path", "3")]), "Path=3\0x=2\0\0");
        assert_eq!(lookup(&variables(&[("PATH", "1"), ("Path", "3")]), "path"), Some(&[u16::from(b'3')][..]));
    }

    #[test]
    fn an_empty_environment_has_two_terminators() {
        assert_eq!(block(&[]), [0, 0]);
    }

    #[test]
    fn the_systems_own_variables_pass_through() {
        assert_eq!(text(&[("=C:", r"C:\x"), ("E", "")]), "=C:=C:\\x\0E=\0\0");
    }

    #[test]
    fn a_name_without_upper_case_or_half_of_a_pair_is_kept() {
        let lone = vec![(vec![0xd800], vec![1])];
        assert_eq!(block(&lone), [0xd800, u16::from(b'='), 1, 0, 0]);
        assert_eq!(text(&[("ß", "1"), ("SS", "2")]), "SS=2\0ß=1\0\0", "they are not the same name");
    }

    #[test]
    fn a_missing_variable_is_none() {
        assert_eq!(lookup(&variables(&[("PATHEXT", "x")]), "PATH"), None);
    }
}
