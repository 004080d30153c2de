// The table of methods and roles: it knows every method of the contract, and lets nobody do more
// than their role.
#include "common/security/method_roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace tandem::security {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Every method of every service of proto/, as the files say.
std::set<std::string> MethodsOfTheContract() {
  const char* source = std::getenv("TANDEM_SOURCE");
  const std::regex package(R"(^package ([\w.]+);)");
  const std::regex service(R"(^service (\w+))");
  const std::regex method(R"(^\s*rpc (\w+)\()");
  std::set<std::string> methods;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(source == nullptr ? "." : source) + "/proto")) {
    if (entry.path().extension() != ".proto") continue;
    std::ifstream file(entry.path());
    std::string in_package, in_service;
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_search(line, match, package)) in_package = match[1];
      if (std::regex_search(line, match, service)) in_service = match[1];
      if (std::regex_search(line, match, method)) {
        methods.insert(absl::StrCat("/", in_package, ".", in_service, "/", match[1].str()));
      }
    }
  }
  return methods;
}

TEST(MethodRoles, KnowEveryMethodOfTheContractAndNoOther) {
  const std::set<std::string> contract = MethodsOfTheContract();
  ASSERT_GE(contract.size(), 24u);
  std::set<std::string> table;
  for (const MethodRoles& row : AllMethodRoles()) {
    EXPECT_FALSE(row.callers.empty()) << row.method;
    EXPECT_FALSE(row.servers.empty()) << row.method;
    if (!absl::StartsWith(row.method, "/grpc.")) {
      EXPECT_TRUE(table.insert(row.method).second) << row.method << " stands there twice";
    }
  }
  EXPECT_EQ(table, contract);
}

TEST(MethodRoles, AnObserverOnlyReads) {
  const std::set<std::string> reads = {
      "/tandem.diagnostics.v1.DiagnosticsService/CheckReach",
      "/tandem.trainer.v1.TrainerService/GetModelInfo",
      "/tandem.trainer.v1.TrainerService/GetWeightDigests",
      "/tandem.trainer.v1.TrainerService/Watch",
      "/tandem.rollout.v1.RolloutService/GetServerInfo",
      "/tandem.rollout.v1.WeightService/GetDigests",
      "/tandem.rollout.v1.WeightService/GetManifest",
      "/grpc.health.v1.Health/Check",
      "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  for (const MethodRoles& row : AllMethodRoles()) {
    EXPECT_EQ(row.callers.Has(Role::kObserver), reads.count(row.method) > 0) << row.method;
  }
}

TEST(MethodRoles, ARolloutCallsNothingOfTheTrainer) {
  for (const MethodRoles& row : AllMethodRoles()) {
    if (absl::StartsWith(row.method, "/tandem.trainer.")) {
      EXPECT_FALSE(row.callers.Has(Role::kRollout)) << row.method;
    }
  }
}

TEST(MethodRoles, ARefusalNamesMethodFoundAndAllowed) {
  EXPECT_OK(CheckCaller("/tandem.trainer.v1.TrainerService/TrainStep", {Role::kDriver}));
  EXPECT_OK(
      CheckCaller("/tandem.trainer.v1.TrainerService/TrainStep", {Role::kObserver, Role::kDriver}));
  EXPECT_THAT(CheckCaller("/tandem.rollout.v1.WeightService/GetDigests", {Role::kRollout}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("/tandem.rollout.v1.WeightService/GetDigests"),
                             HasSubstr("driver, trainer, observer"), HasSubstr("found rollout"))));
}

TEST(MethodRoles, WhatTheTableDoesNotKnowNobodyMayCall) {
  for (const char* method : {"", "/", "/tandem.trainer.v1.TrainerService/Format",
                             "/tandem.trainer.v1.TrainerService/Watch/"}) {
    for (const Role role : kAllRoles) {
      EXPECT_THAT(CheckCaller(method, {role}),
                  StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("unknown")));
    }
  }
}

TEST(MethodRoles, AServerMustHaveTheRoleThatServesTheMethod) {
  EXPECT_OK(CheckServer("/tandem.trainer.v1.TrainerService/Watch", {Role::kTrainer}));
  EXPECT_THAT(CheckServer("/tandem.trainer.v1.TrainerService/Watch", {Role::kRollout}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("role trainer"), HasSubstr("found rollout"))));
  EXPECT_FALSE(CheckServer("/grpc.health.v1.Health/Check", {Role::kObserver}).ok());
}

TEST(Roles, AreReadFromTheUrisOfACertificate) {
  EXPECT_EQ(RolesOfUris({"spiffe://prod/tandem/trainer"}), Roles({Role::kTrainer}));
  EXPECT_EQ(
      RolesOfUris({"spiffe://prod/tandem/rollout/pod-7", "https://x", "spiffe://p/tandem/driver"}),
      Roles({Role::kRollout, Role::kDriver}));
  EXPECT_EQ(RolesOfUris({"spiffe:///tandem/driver", "spiffe://prod/driver", "spiffe://prod/tandem",
                         "spiffe://prod/tandem/drivers", "http://prod/tandem/driver",
                         "spiffe://prod/other/tandem/driver", ""}),
            Roles());
}

}  // namespace
}  // namespace tandem::security
