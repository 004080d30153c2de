#include "common/security/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/certificates.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"

namespace tandem::security {
namespace {

using ::tandem::testing::RoleUri;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status Check(const rpc::SecurityOptions& files, Role role) {
  return CheckCertificateFiles(files.tls_cert, files.tls_key, files.tls_ca, {role});
}

TEST(CertificateFiles, AreTakenWhereTheyFitTheRole) {
  const TempFolder folder;
  const TestAuthority authority(folder, "ca");
  EXPECT_OK(Check(authority.Issue(Role::kTrainer), Role::kTrainer));
  const auto several = authority.Issue(
      "local", {.uris = {RoleUri(Role::kTrainer), RoleUri(Role::kRollout), "https://elsewhere"}});
  EXPECT_OK(Check(several, Role::kTrainer));
  EXPECT_OK(Check(several, Role::kRollout));
  EXPECT_THAT(Check(several, Role::kDriver),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("local.crt"), HasSubstr("the role driver"),
                             HasSubstr("roles found: trainer, rollout"))));
}

TEST(CertificateFiles, AnErrorSaysWhichFileIsWrong) {
  const TempFolder folder;
  const TestAuthority authority(folder, "ca");
  const auto files = authority.Issue(Role::kDriver);
  const auto expired =
      authority.Issue("old", {.uris = {RoleUri(Role::kDriver)}, .valid_for = -absl::Minutes(1)});
  EXPECT_THAT(Check(expired, Role::kDriver),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("old.crt"), HasSubstr("expired"))));
  auto mixed = files;
  mixed.tls_key = expired.tls_key;
  EXPECT_THAT(Check(mixed, Role::kDriver),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not belong to")));
  auto missing = files;
  missing.tls_ca = folder / "nothing.crt";
  EXPECT_THAT(Check(missing, Role::kDriver),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing.crt")));
  auto nonsense = files;
  nonsense.tls_key = folder.Write("nonsense.key", "no key");
  EXPECT_THAT(Check(nonsense, Role::kDriver),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("nonsense.key"), HasSubstr("PEM"))));
}

TEST(CertificateFiles, OfTheToolAreTakenByEveryRoleAndRenewed) {
  const TempFolder folder;
  const std::string tool = std::string(std::getenv("TANDEM_SOURCE")) + "/tools/certificates";
  const std::string certs = folder / "certs";
  const auto made = testing::RunProgram(tool, {certs});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto check = [&](const std::string& name, Role role) {
    return CheckCertificateFiles(certs + "/" + name + ".crt", certs + "/" + name + ".key",
                                 certs + "/ca.crt", {role});
  };
  for (const Role role : kAllRoles) EXPECT_OK(check(std::string(RoleName(role)), role));
  for (const Role role : {Role::kDriver, Role::kTrainer, Role::kRollout}) {
    EXPECT_OK(check("local", role));
  }
  const std::string authority = testing::ReadWhole(certs + "/ca.crt");
  const auto before = ReadCertificate(certs + "/trainer.crt");
  ASSERT_OK(before.status());
  ASSERT_EQ(testing::RunProgram(tool, {certs, "--days", "90", "trainer"}).exit_code, 0);
  const auto after = ReadCertificate(certs + "/trainer.crt");
  ASSERT_OK(after.status());
  EXPECT_GT(after->not_after, before->not_after + absl::Hours(24));
  EXPECT_OK(check("trainer", Role::kTrainer));
  EXPECT_EQ(testing::ReadWhole(certs + "/ca.crt"), authority);
  EXPECT_EQ(testing::RunProgram(tool, {}).exit_code, 2);
  EXPECT_EQ(testing::RunProgram(tool, {certs, "king"}).exit_code, 2);
}

}  // namespace
}  // namespace tandem::security
