#include <gtest/gtest.h>

#include <cstdint>

#include "base/try.h"
#include "codec/address.h"
#include "codec/field_path.h"
#include "codec/json.h"
#include "codec/object_reader.h"
#include "codec/toml.h"

namespace temenos {
namespace {

namespace json = boost::json;
using testing::Test;

template <typename T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().to_string();
}

TEST(Json, RefusesWithThePlace) {
  const std::string deep(17, '[');
  const struct {
    std::string text, error;
  } rows[] = {
      {R"({"a":1,"a":2})", "a: the key occurs twice: keep one of the two"},
      {R"({"m":[{},{"x":{"k":1,"k":1}}]})", "m[1].x.k: the key occurs twice: keep one of the two"},
      {R"({"a\u0062":1,"ab":2})", "ab: the key occurs twice: keep one of the two"},
      {R"({"q r":1,"q r":2})", "[\"q r\"]: the key occurs twice: keep one of the two"},
      {"{\"a\":\n  ?}", "not valid JSON at line 2 column 3 (syntax error): correct the text there"},
      {"{} x", "not valid JSON at line 1 column 4 (extra data): correct the text there"},
      {"", "not valid JSON at line 1 column 1 (incomplete JSON): correct the text there"},
      {"\"\xff\"", "not valid JSON at line 1 column 2 (syntax error): correct the text there"},
      {deep, "the JSON text nests deeper than 16 levels: use fewer levels"},
      {std::string((1 << 20) + 1, ' '),
       "the JSON text is longer than 1048576 bytes: make it shorter"},
  };
  for (const auto& row : rows) EXPECT_EQ(error_of(parse_json(row.text)), row.error) << row.text;
}

TEST(Json, RoundTripsAndKeepsOrder) {
  const std::string text = R"({"z":[1,-2,true,null,"\u0000é"],"a":{"b":{}}})";
  auto value = parse_json(text);
  ASSERT_TRUE(value) << error_of(value);
  EXPECT_EQ(serialize_json(*value), text);
  EXPECT_EQ(parse_json("18446744073709551615")->get_uint64(), UINT64_MAX);
  EXPECT_TRUE(parse_json(std::string(16, '[') + std::string(16, ']')));
}

TEST(Json, SameKeyInDifferentObjectsIsFine) {
  EXPECT_TRUE(parse_json(R"([{"a":{"a":1}},{"a":2}])"));
}

TEST(Toml, RefusesWithThePlace) {
  std::string dotted = "a";
  for (int i = 0; i < 100000; ++i) dotted += ".a";
  const struct {
    std::string text, error;
  } rows[] = {
      {"a = 1\nb = ", "not valid TOML at line 2 column 5"},
      {"a = 1\na = 2\n", "not valid TOML at line 2"},
      {"d = 2026-11-29", "d: dates and times are not used here: write a number or a string"},
      {"x = [1.5, nan]", "x[1]: expected a finite number, got inf or nan: write a number"},
      {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q = 1", "the TOML text nests deeper than 16 levels"},
      {dotted + " = 1", "a key or value of the TOML text has more than 64 dots: use fewer levels"},
      {"[" + dotted + "]", "a key or value of the TOML text has more than 64 dots"},
      {"[= \"r", "not valid TOML at line 1 column"},
      {"a\xca\x8c = 1", "not valid TOML at line 1 column"},
      {"a = \"\xff\"", "not valid TOML at line 1 column"},
      {std::string((1 << 20) + 1, '\n'), "the TOML text is longer than 1048576 bytes"},
  };
  for (const auto& row : rows) {
    EXPECT_TRUE(error_of(parse_toml(row.text)).starts_with(row.error))
        << row.text.substr(0, 80) << "\n"
        << error_of(parse_toml(row.text));
  }
}

// The deepest tree that gets past the checks is freed by recursion and must not end the stack.
TEST(Toml, DeepestAcceptedTextIsRefusedAlive) {
  std::string segment = "a";
  for (int i = 0; i < 63; ++i) segment += ".a";
  std::string text = "[" + segment + "]\n";
  for (int i = 0; i < 32; ++i) text += segment + " = {";
  EXPECT_FALSE(parse_toml(text));
  EXPECT_FALSE(parse_toml("[" + segment + "]\n" + segment + " = 1"));
  EXPECT_FALSE(parse_toml("a = " + std::string(1 << 19, '[')));
}

TEST(Toml, WritesWhatItReads) {
  auto value = parse_json(
      R"({"s":"q\"\\\n\u0001\u007f é","n":-7,"f":1.5,"g":1.0,"h":1e300,"b":true,"e":[],"l":["a",[1,{"x":2}]],)"
      R"("t":{"k k":"v","n":{"deep":{}}},"o":{},"m":[{"a":1,"b":{"c":[]}},{"a":2}]})");
  ASSERT_TRUE(value);
  auto text = serialize_toml(value->get_object());
  ASSERT_TRUE(text) << error_of(text);
  auto again = parse_toml(*text);
  ASSERT_TRUE(again) << error_of(again) << "\n" << *text;
  EXPECT_EQ(*again, *value) << *text;
}

TEST(Toml, ManyDotsInAStringSurvive) {
  const json::object root{{"s", std::string(500, '.')}};
  auto text = serialize_toml(root);
  ASSERT_TRUE(text);
  auto again = parse_toml(*text);
  ASSERT_TRUE(again) << error_of(again);
  EXPECT_EQ(again->get_object(), root);
}

TEST(Toml, RefusesToWriteWhatTomlCannotSay) {
  EXPECT_FALSE(serialize_toml(json::object{{"a", nullptr}}));
  EXPECT_FALSE(serialize_toml(json::object{{"a", UINT64_MAX}}));
  EXPECT_FALSE(serialize_toml(json::object{{"a", "\xff"}}));
}

Result<std::string> read_sample(std::string_view text) {
  const json::value value = TRY(parse_json(text));
  ObjectReader in = TRY(ObjectReader::of(value, ""));
  std::string out = TRY(in.string("name"));
  const auto flag = TRY(in.optional_bool("flag"));
  const auto count = TRY(in.optional_int("count"));
  const auto ratio = TRY(in.optional_number("ratio"));
  const json::array* list = TRY(in.optional_array("list", 2));
  const json::value* table = TRY(in.optional_object("table"));
  if (flag) out += *flag ? " yes" : " no";
  if (count) out += " " + std::to_string(*count);
  if (ratio) out += " " + std::to_string(*ratio);
  if (list) out += " " + std::to_string(list->size());
  if (table) {
    ObjectReader inner = TRY(ObjectReader::of(*table, in.path("table")));
    out += " " + std::to_string(TRY(inner.integer("n")));
    TRY(inner.finish());
  }
  TRY(in.finish());
  return out;
}

TEST(ObjectReader, IsStrictAndNamesTheField) {
  EXPECT_EQ(*read_sample(R"({"name":"a"})"), "a");
  EXPECT_EQ(
      *read_sample(R"({"table":{"n":3},"list":[1],"ratio":2,"count":-1,"flag":false,"name":"b"})"),
      "b no -1 2.000000 1 3");
  const struct {
    std::string_view text, error;
  } rows[] = {
      {"[]", "expected a table of fields, got a list: give it a table of fields"},
      {"{}", "name: missing, expected a string: add the field name"},
      {R"({"name":null})", "name: expected a string, got null: give it a string"},
      {R"({"name":"a","flag":1})",
       "flag: expected true or false, got a number: give it true or false"},
      {R"({"name":"a","count":1.0})",
       "count: expected a whole number, got a number: give it a whole number"},
      {R"({"name":"a","count":9223372036854775808})",
       "count: expected a whole number below 2^63, got \"9223372036854775808\": use a smaller "
       "number"},
      {R"({"name":"a","ratio":"1"})", "ratio: expected a number, got a string: give it a number"},
      {R"({"name":"a","list":{}})", "list: expected a list, got a table of fields: give it a list"},
      {R"({"name":"a","list":[1,2,3]})",
       "list: expected at most 2 entries, got 3: shorten the list"},
      {R"({"name":"a","table":{"n":1,"N":2}})", "table.N: unknown field: the fields here are n"},
      {R"({"name":"a","nam":1})",
       "nam: unknown field: the fields here are name, flag, count, ratio, list, table"},
  };
  for (const auto& row : rows) EXPECT_EQ(error_of(read_sample(row.text)), row.error) << row.text;
}

TEST(FieldPath, BoundsWhatIsHostile) {
  EXPECT_EQ(field_path(field_path("mounts", 1), "target"), "mounts[1].target");
  EXPECT_EQ(field_path("env", "a.b"), "env[\"a.b\"]");
  EXPECT_EQ(field_path("", ""), "[\"\"]");
  EXPECT_LT(field_path(std::string(5000, 'a'), std::string(5000, 'b')).size(), 200u);
  EXPECT_EQ(in_quotes(std::string(79, 'a') + "é"), "\"" + std::string(79, 'a') + "...\"");
}

TEST(Address, Text) {
  const struct {
    std::string_view in, out;
  } good[] = {{"1.2.3.4", "1.2.3.4"},
              {"::FFFF:1.2.3.4", "1.2.3.4"},
              {"2001:DB8:0:0::1", "2001:db8::1"},
              {"::", "::"}};
  for (const auto& row : good) {
    const auto block = parse_address(row.in);
    ASSERT_TRUE(block) << row.in;
    EXPECT_EQ(format_block(*block), row.out);
  }
  for (const char* bad : {"", "1.2.3", "01.2.3.4", "1.2.3.4.", "1.2.3.256", "0x1.2.3.4", "1.2.3.+4",
                          "fe80::1%eth0", "1::2::3", "::ffff:1.2.3.04", "1.2.3.4/32"}) {
    EXPECT_FALSE(parse_address(bad)) << bad;
  }
  EXPECT_EQ(format_block(*parse_block("::ffff:10.0.0.0/104").block), "10.0.0.0/8");
  EXPECT_EQ(format_block(*parse_block("2001:db8::/32").block), "2001:db8::/32");
  EXPECT_TRUE(parse_block("10.0.0.1/8").bad_host_bits);
  for (const char* bad :
       {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "::/129", "/8", "10.0.0.0/8/8"}) {
    EXPECT_FALSE(parse_block(bad).block) << bad;
    EXPECT_FALSE(parse_block(bad).bad_host_bits) << bad;
  }
}

TEST(Address, ClassesAndContainment) {
  const struct {
    std::string_view address;
    AddressClass of;
  } rows[] = {
      {"8.8.8.8", AddressClass::kPublic},
      {"2606:4700::1", AddressClass::kPublic},
      {"127.9.9.9", AddressClass::kLoopback},
      {"::1", AddressClass::kLoopback},
      {"::ffff:127.0.0.1", AddressClass::kLoopback},
      {"169.254.169.254", AddressClass::kSpecial},
      {"fd00:ec2::254", AddressClass::kSpecial},
      {"100.100.100.200", AddressClass::kSpecial},
      {"168.63.129.16", AddressClass::kSpecial},
      {"169.254.0.23", AddressClass::kSpecial},
      {"169.254.42.42", AddressClass::kSpecial},
      {"192.0.0.192", AddressClass::kSpecial},
      {"192.80.8.124", AddressClass::kSpecial},
      {"100.88.222.5", AddressClass::kSpecial},
      {"fd00:100::100:200", AddressClass::kSpecial},
      {"fd00:ec2::23", AddressClass::kSpecial},
      {"fd20:ce::254", AddressClass::kSpecial},
      {"fd00:c1::a9fe:a9fe", AddressClass::kSpecial},
      {"fd00:42::42", AddressClass::kSpecial},
      {"fd00:a9fe:a9fe::1", AddressClass::kSpecial},
      {"fe80::a9fe:a9fe", AddressClass::kSpecial},
      {"fd74:656d:656e:6f73::1:0:0", AddressClass::kSpecial},
      {"fd74:656d:656e:6f74::1", AddressClass::kPrivate},
      {"198.18.1.0", AddressClass::kSpecial},
      {"::ffff:0:169.254.169.254", AddressClass::kSpecial},
      {"::127.0.0.1", AddressClass::kSpecial},
      {"2002:7f00:1::", AddressClass::kSpecial},
      {"64:ff9b::a00:1", AddressClass::kSpecial},
      {"255.255.255.255", AddressClass::kSpecial},
      {"0.0.0.0", AddressClass::kSpecial},
      {"172.31.255.255", AddressClass::kPrivate},
      {"172.32.0.0", AddressClass::kPublic},
      {"100.64.0.1", AddressClass::kPrivate},
      {"fdff::1", AddressClass::kPrivate},
  };
  for (const auto& row : rows)
    EXPECT_EQ(classify(*parse_address(row.address)), row.of) << row.address;
  const auto all4 = *parse_block("0.0.0.0/0").block, all6 = *parse_block("::/0").block;
  EXPECT_EQ(classify(all4), AddressClass::kPublic);
  EXPECT_TRUE(holds_private(all4));
  EXPECT_TRUE(all4.contains(*parse_address("1.2.3.4")));
  EXPECT_FALSE(all6.contains(*parse_address("::ffff:1.2.3.4")));
  EXPECT_FALSE(parse_address("1.2.3.4")->contains(all4));
}

}  // namespace
}  // namespace temenos
