#include "common/security/secret.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/escaping.h"

namespace tandem::security {
namespace {

TEST(Secret, IsAnotherEachTime) {
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) {
    const std::string secret = DrawSecret();
    EXPECT_EQ(secret.size(), kSecretBytes);
    EXPECT_TRUE(drawn.insert(secret).second);
  }
}

TEST(Secret, TheDigestIsSha256) {
  EXPECT_EQ(absl::BytesToHexString(Digest("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Secret, AProofDependsOnTheKeyAndOnWhereEachPartEnds) {
  const std::string proof = Hmac("key", {"ab", "c"});
  EXPECT_EQ(proof.size(), kSecretBytes);
  EXPECT_EQ(proof, Hmac("key", {"ab", "c"}));
  EXPECT_NE(proof, Hmac("Key", {"ab", "c"}));
  EXPECT_NE(proof, Hmac("key", {"a", "bc"}));
  EXPECT_NE(proof, Hmac("key", {"abc"}));
}

TEST(Secret, EqualMeansEveryByte) {
  EXPECT_TRUE(AreEqual("", ""));
  EXPECT_TRUE(AreEqual("abc", "abc"));
  EXPECT_FALSE(AreEqual("abc", "abd"));
  EXPECT_FALSE(AreEqual("abc", "ab"));
}

}  // namespace
}  // namespace tandem::security
