#include "common/security/sealed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/security/secret.h"
#include "tests/support/status_matchers.h"

namespace tandem::security {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kSecret[] = "what the ranks know";

TEST(Sealed, OpensWithTheSecretAndContextThatItWasMadeWith) {
  for (const std::string& plaintext : {std::string(), DrawSecret(), std::string(5000, 'x')}) {
    const std::string sealed = Seal(kSecret, plaintext, "update 1");
    const auto opened = Unseal(kSecret, sealed, "update 1");
    ASSERT_OK(opened);
    EXPECT_EQ(*opened, plaintext);
    if (!plaintext.empty()) {
      EXPECT_EQ(sealed.find(plaintext), std::string::npos);
    }
  }
}

TEST(Sealed, IsAnotherTextEachTime) {
  EXPECT_NE(Seal(kSecret, "the same", "update 1"), Seal(kSecret, "the same", "update 1"));
}

TEST(Sealed, DoesNotOpenOtherwise) {
  const auto refused = StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("cannot open"));
  const std::string sealed = Seal(kSecret, DrawSecret(), "update 1");
  EXPECT_THAT(Unseal("another secret", sealed, "update 1"), refused);
  EXPECT_THAT(Unseal(kSecret, sealed, "update 2"), refused);
  EXPECT_THAT(Unseal(kSecret, "", "update 1"), refused);
  EXPECT_THAT(Unseal(kSecret, sealed.substr(1), "update 1"), refused);
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] ^= 1;
    EXPECT_THAT(Unseal(kSecret, changed, "update 1"), refused) << "byte " << i;
  }
}

}  // namespace
}  // namespace tandem::security
