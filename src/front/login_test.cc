#include "front/login.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace temenos::front {
namespace {

TEST(Login, KnowsItsPasswordAlone) {
  const Login login("secret", true);
  EXPECT_TRUE(login.of_box());
  EXPECT_TRUE(login.knows("Basic " + base64_encode("temenos:secret")));
  EXPECT_TRUE(login.knows("bASIC " + base64_encode("temenos:secret")));
  EXPECT_TRUE(login.knows("temenos", "secret"));
  for (const char* user_password :
       {"", ":", "temenos:", "temenos:secre", "temenos:secret2", "temenos:Secret", "Temenos:secret",
        ":secret", "x:secret", "temenos:secret:"}) {
    const std::string text = user_password;
    EXPECT_FALSE(login.knows("Basic " + base64_encode(text))) << text;
    const auto colon = text.find(':');
    if (colon == text.npos) continue;
    EXPECT_FALSE(login.knows(text.substr(0, colon), text.substr(colon + 1))) << text;
  }
  const std::string good = base64_encode("temenos:secret");
  for (const std::string& text : {good, "Basic" + good, "Basic  " + good, "Basic " + good + " ",
                                  "Basic " + good + "=", "Bearer " + good, std::string()}) {
    EXPECT_FALSE(login.knows(text)) << text;
  }
}

// It would be everybody's.
TEST(Login, WithoutAPasswordNobodyIsKnown) {
  const Login login("", false);
  EXPECT_FALSE(login.of_box());
  EXPECT_FALSE(login.knows("temenos", ""));
  EXPECT_FALSE(login.knows("Basic " + base64_encode("temenos:")));
}

}  // namespace
}  // namespace temenos::front
