#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/security/data_plane.h"
#include "tests/support/status_matchers.h"

namespace tandem::security {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

DataPlaneEncryption Resolved(absl::string_view word, bool has_tls) {
  return ResolveDataPlane(word, has_tls, false)->encryption;
}

TEST(DataPlanePolicy, AutoEncryptsBetweenHostsWhereThereIsTls) {
  EXPECT_EQ(Resolved("auto", true), DataPlaneEncryption::kBetweenHosts);
  EXPECT_EQ(Resolved("auto", false), DataPlaneEncryption::kNever);
}

TEST(DataPlanePolicy, TheOtherWordsHoldWithAndWithoutTls) {
  for (const bool has_tls : {false, true}) {
    EXPECT_EQ(Resolved("always", has_tls), DataPlaneEncryption::kAlways);
    EXPECT_EQ(Resolved("never", has_tls), DataPlaneEncryption::kNever);
  }
}

TEST(DataPlanePolicy, SaysWhereItComesFrom) {
  EXPECT_EQ(ResolveDataPlane("auto", true, false)->source, "--data-plane-encryption auto, TLS on");
  EXPECT_TRUE(ResolveDataPlane("auto", true, true)->allow_plaintext_nccl);
}

TEST(DataPlanePolicy, AnotherWordIsRefusedWithThoseThatThereAre) {
  EXPECT_THAT(ResolveDataPlane("sometimes", true, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("auto, always or never"), HasSubstr("'sometimes'"))));
}

}  // namespace
}  // namespace tandem::security
