//! Periods of equal length, in UTC: a day has 24 hours, and a week begins on Monday.

use jiff::Timestamp;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// A Monday. All periods are counted from it, so that days begin at midnight and weeks on Monday.
const ANCHOR: i64 = 4 * DAY;

/// The largest number of periods.
pub(super) const MOST: i64 = 60;

/// The lengths to choose from by default.
const WIDTHS: [i64; 9] = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, WEEK, 4 * WEEK, 52 * WEEK];

/// The length of periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    /// The shortest that covers everything: from minutes to years.
    #[default]
    Auto,
    /// An hour; the last 60 of them.
    Hour,
    /// A day; the last 60 of them.
    Day,
    /// A week; the last 60 of them.
    Week,
}

/// Consecutive periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// When the first one begins, in milliseconds since 1970.
    pub first: i64,
    /// Their length.
    pub width: i64,
    /// Their number.
    pub count: usize,
    /// How many earlier periods are left out.
    pub omitted: u64,
}

/// When the period begins that `ms` is in.
fn start(ms: i64, width: i64) -> i64 {
    ms - (ms - ANCHOR).rem_euclid(width)
}

impl Grid {
    /// From the period with `first` in it to the one with `last`, in milliseconds since 1970.
    pub fn over(first: i64, last: i64, period: Period) -> Self {
        // A record can have any time; one that no calendar has would overflow below.
        let known = |ms: i64| ms.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        let (first, last) = (known(first), known(last).max(known(first)));
        let count = |width| (start(last, width) - start(first, width)) / width + 1;
        let width = match period {
            Period::Auto => widths().find(|width| count(*width) <= MOST).unwrap_or(i64::MAX / 4),
            Period::Hour => HOUR,
            Period::Day => DAY,
            Period::Week => WEEK,
        };
        let (wanted, shown) = (count(width), count(width).min(MOST));
        Self {
            first: start(last, width) - (shown - 1) * width,
            width,
            count: usize::try_from(shown).unwrap_or(0),
            omitted: (wanted - shown).cast_unsigned(),
        }
    }

    /// The period that a time is in.
    pub fn place(&self, ms: i64) -> Option<usize> {
        let after = usize::try_from(ms.checked_sub(self.first)?.div_euclid(self.width)).ok()?;
        (after < self.count).then_some(after)
    }

    /// The same in SQL, for a column without times before the first period.
    pub fn place_sql(&self, column: &str) -> String {
        format!("({column} - ({})) / {}", self.first, self.width)
    }

    /// When a period begins, by the wall clock.
    pub fn wall(&self, place: usize) -> String {
        let ms = self.first + self.width * i64::try_from(place).unwrap_or(0);
        let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MIN);
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// The lengths to choose from, in ascending order.
fn widths() -> impl Iterator<Item = i64> {
    let last = WIDTHS[WIDTHS.len() - 1];
    WIDTHS.into_iter().chain((1..20).map(move |doubled| last << doubled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(wall: &str) -> i64 {
        wall.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn over(first: &str, last: &str, period: Period) -> Grid {
        Grid::over(ms(first), ms(last), period)
    }

    #[test]
    fn the_width_follows_from_the_span() {
        let from = "2026-03-29T00:00:00Z";
        for (until, width, count) in [
            ("2026-03-29T00:00:00Z", MINUTE, 1),
            ("2026-03-29T00:59:59.999Z", MINUTE, 60),
            ("2026-03-29T01:00:00Z", 5 * MINUTE, 13),
            ("2026-03-29T05:00:00Z", 15 * MINUTE, 21),
            ("2026-03-31T11:59:59Z", HOUR, 60),
            ("2026-03-31T12:00:00Z", 6 * HOUR, 11),
            ("2026-05-27T00:00:00Z", DAY, 60),
            ("2026-05-28T00:00:00Z", WEEK, 10),
            ("2030-03-29T00:00:00Z", 4 * WEEK, 53),
            ("2060-03-29T00:00:00Z", 52 * WEEK, 35),
        ] {
            let grid = over(from, until, Period::Auto);
            assert_eq!((grid.width, grid.count, grid.omitted), (width, count, 0), "{until}");
            assert_eq!(grid.place(ms(from)), Some(0), "{until}");
            assert_eq!(grid.place(ms(until)), Some(count - 1), "{until}");
        }
    }

    #[test]
    fn hours_days_and_weeks_begin_where_people_expect_it() {
        // A Sunday on which clocks change in Europe: that has no effect in UTC.
        let at = |period| over("2026-03-29T01:59:00Z", "2026-03-29T03:30:00Z", period);
        assert_eq!((at(Period::Hour).wall(0).as_str(), at(Period::Hour).count), ("2026-03-29T01:00:00Z", 3));
        assert_eq!((at(Period::Day).wall(0).as_str(), at(Period::Day).count), ("2026-03-29T00:00:00Z", 1));
        assert_eq!((at(Period::Week).wall(0).as_str(), at(Period::Week).count), ("2026-03-23T00:00:00Z", 1));
        let days = over("2026-03-28T23:59:59Z", "2026-03-30T00:00:00Z", Period::Day);
        assert_eq!((days.count, days.wall(2).as_str()), (3, "2026-03-30T00:00:00Z"));
    }

    #[test]
    fn of_too_many_the_last_ones_are_kept_and_the_others_counted() {
        let grid = over("2026-01-01T00:00:00Z", "2026-01-04T03:59:00Z", Period::Hour);
        assert_eq!((grid.count, grid.omitted), (60, 16));
        assert_eq!(grid.wall(59), "2026-01-04T03:00:00Z");
        assert_eq!(grid.place(ms("2026-01-01T15:59:59Z")), None);
        assert_eq!(grid.place(ms("2026-01-01T16:00:00Z")), Some(0));
        assert_eq!(grid.place(ms("2026-01-04T04:00:00Z")), None);
    }

    #[test]
    fn no_time_is_too_far_away() {
        for (first, last) in [(0, 0), (-1, 1), (i64::MIN, i64::MAX), (5, -5), (i64::MAX, i64::MAX)] {
            for period in [Period::Auto, Period::Hour, Period::Day, Period::Week] {
                let grid = Grid::over(first, last, period);
                assert!((1..=60).contains(&grid.count), "{first} to {last}: {grid:?}");
                let _ = (grid.wall(0), grid.place(i64::MIN), grid.place(i64::MAX));
            }
        }
    }
}
