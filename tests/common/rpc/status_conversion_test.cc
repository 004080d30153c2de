#include "common/rpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StatusConversion, EveryCodeKeepsItsMeaningBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(wire.error_message(), "why");
    EXPECT_EQ(FromGrpcStatus(wire), status);
  }
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("")).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_OK(FromGrpcStatus(grpc::Status::OK));
}

TEST(StatusConversion, WhatAPeerSaysSteersNoTerminal) {
  EXPECT_EQ(
      FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "\x1b[2Jgone\nfor good")).message(),
      "\\u001b[2Jgone\nfor good");
}

TEST(StatusConversion, CodesFromTheFutureBecomeUnknown) {
  EXPECT_THAT(FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(30), "odd")),
              StatusIs(absl::StatusCode::kUnknown, "odd"));
}

TEST(StatusConversion, PayloadsTravel) {
  absl::Status status = InvalidField("sampling.temperature", "expected >= 0, found -1");
  status = WithReason(std::move(status), "BAD_SAMPLING", {{"found", "-1"}});
  status.SetPayload("type.example/other", absl::Cord(std::string("\0\xff raw", 6)));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back, status);
  EXPECT_THAT(back, StatusIs(absl::StatusCode::kInvalidArgument,
                             "sampling.temperature: expected >= 0, found -1"));
  const auto field = GetDetail<common::v1::BadField>(back);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->field(), "sampling.temperature");
  const auto info = GetDetail<common::v1::ErrorInfo>(back);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->metadata().at("found"), "-1");
  EXPECT_FALSE(GetDetail<common::v1::UnloadedParams>(back).has_value());
}

TEST(StatusConversion, DetailsAreAnyEntriesOfAGoogleRpcStatus) {
  const grpc::Status wire = ToGrpcStatus(InvalidField("f", "d"));
  // code = 3, message = "f: d", one Any of 49 bytes: the type URL (41 bytes) and the BadField.
  const std::string expected = absl::StrCat(
      "\x08\x03\x12\x04"
      "f: d\x1a\x36\x0a\x2c",
      "type.googleapis.com/tandem.common.v1.BadField",
      "\x12\x06\x0a\x01"
      "f\x12\x01"
      "d");
  EXPECT_EQ(wire.error_details().substr(0, 8), expected.substr(0, 8));
  EXPECT_THAT(wire.error_details(), HasSubstr("type.googleapis.com/tandem.common.v1.BadField"));
  EXPECT_THAT(wire.error_details(), EndsWith("\x12\x06\x0a\x01"
                                             "f\x12\x01"
                                             "d"));
}

TEST(StatusConversion, MalformedDetailsAreLeftOut) {
  const std::string good = ToGrpcStatus(InvalidField("f", "d")).error_details();
  for (size_t cut = 0; cut < good.size(); ++cut) {
    const absl::Status status =
        FromGrpcStatus(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "m", good.substr(0, cut)));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "m"));
    EXPECT_FALSE(GetDetail<common::v1::BadField>(status).has_value()) << cut;
  }
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "m", std::string(64, '\xff'))),
              StatusIs(absl::StatusCode::kAborted, "m"));
}

TEST(StatusConversion, LongListsKeepTheirFirstNamesAndFitATrailer) {
  common::v1::UnloadedParams params;
  for (int i = 0; i < 500; ++i) {
    params.add_missing(absl::StrCat("model.layers.", i, ".self_attn.q_proj.weight"));
    params.add_unexpected(absl::StrCat("transformer.h.", i, ".attn.c_attn.weight"));
  }
  absl::Status status = absl::FailedPreconditionError(std::string(5000, 'm'));
  AttachDetail(status, params);
  status = WithReason(std::move(status), "UNLOADED_PARAMS");
  const grpc::Status wire = ToGrpcStatus(status);
  EXPECT_LE(wire.error_message().size() + wire.error_details().size() * 4 / 3, 8000u);
  const absl::Status back = FromGrpcStatus(wire);
  EXPECT_EQ(GetDetail<common::v1::ErrorInfo>(back)->reason(), "UNLOADED_PARAMS");
  const auto received = GetDetail<common::v1::UnloadedParams>(back);
  ASSERT_TRUE(received.has_value());
  EXPECT_GT(received->missing_size(), 10);
  EXPECT_GT(received->unexpected_size(), 10);
  EXPECT_EQ(received->missing(0), params.missing(0));
  EXPECT_THAT(std::string(back.message()), EndsWith("m... (cut)"));
}

TEST(StatusConversion, MessagesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "é";
  const std::string cut = ToGrpcStatus(absl::InternalError(text)).error_message();
  ASSERT_THAT(cut, EndsWith("... (cut)"));
  EXPECT_EQ((cut.size() - 9) % 2, 0u);
  EXPECT_LT(cut.size() * 3, 8192u);
}

TEST(StatusConversion, AnOkStatusCarriesNoDetail) {
  absl::Status status;
  AttachDetail(status, common::v1::BadField());
  EXPECT_OK(status);
  EXPECT_FALSE(GetDetail<common::v1::BadField>(status).has_value());
}

}  // namespace
}  // namespace tandem::rpc
