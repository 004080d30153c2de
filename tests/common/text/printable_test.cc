#include "common/text/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "common/text/utf8.h"

namespace tandem::text {
namespace {

TEST(Printable, SpellsOutWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("\x1b[2J\x1b]0;title\x07"), "\\u001b[2J\\u001b]0;title\\u0007");
  EXPECT_EQ(Printable("a\rb\x7f"), "a\\u000db\\u007f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "evil"),
            "\\u202eevil");  // right-to-left override
  EXPECT_EQ(Printable(std::string("\0", 1)), "\\u0000");
}

TEST(Printable, KeepsTextOfEveryLanguage) {
  const std::string text = "höchstens 3 μs, 数字, 🙂\n\tsecond line";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(PrintableLine(text), "höchstens 3 μs, 数字, 🙂\\n\\tsecond line");
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(Printable("\xff\xc0\x80z"), "\\xff\\xc0\\x80z");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");           // cut off
}

TEST(Printable, ChangesItsOwnResultNoFurther) {
  const std::string once = Printable("\x1b[31m\\ \xff");
  EXPECT_EQ(Printable(once), once);
}

TEST(Utf8, IsWhatTheStandardSays) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("\xf4\x8f\xbf\xbf"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(IsUtf8("\xe0\x80\x80"));      // longer than need be
}

}  // namespace
}  // namespace tandem::text
