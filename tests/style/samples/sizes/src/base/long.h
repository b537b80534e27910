// line
// line
// line
// line
// line
// line
