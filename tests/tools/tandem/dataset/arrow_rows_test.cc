// Parquet and Arrow files, in one process with gRPC, as the driver reads them.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/dataset/row_reader.h"

namespace tandem::dataset {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> RowsOf(const std::string& path) {
  std::vector<std::string> rows;
  const absl::Status status = ForEachRow(path, [&rows](const io::JsonFields& row) {
    rows.push_back(std::string(row.source()));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return rows;
}

// Two rows as verl writes them: messages, a nested ground truth, token ids.
std::shared_ptr<arrow::Table> VerlTable() {
  const auto message =
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  const auto schema = arrow::schema(
      {arrow::field("prompt", arrow::list(message)),
       arrow::field("reward_model", arrow::struct_({arrow::field("ground_truth", arrow::utf8())})),
       arrow::field("ids", arrow::list(arrow::int64()))});
  auto builder = *arrow::RecordBatchBuilder::Make(schema, arrow::default_memory_pool());
  auto* prompts = builder->GetFieldAs<arrow::ListBuilder>(0);
  auto* turn = static_cast<arrow::StructBuilder*>(prompts->value_builder());
  auto* model = builder->GetFieldAs<arrow::StructBuilder>(1);
  auto* ids = builder->GetFieldAs<arrow::ListBuilder>(2);
  for (const char* text : {"1+2", "3+4"}) {
    EXPECT_TRUE(prompts->Append().ok() && turn->Append().ok());
    EXPECT_TRUE(static_cast<arrow::StringBuilder*>(turn->field_builder(0))->Append("user").ok());
    EXPECT_TRUE(static_cast<arrow::StringBuilder*>(turn->field_builder(1))->Append(text).ok());
    EXPECT_TRUE(model->Append().ok());
    EXPECT_TRUE(static_cast<arrow::StringBuilder*>(model->field_builder(0))->AppendNull().ok());
    EXPECT_TRUE(ids->Append().ok());
    EXPECT_TRUE(static_cast<arrow::Int64Builder*>(ids->value_builder())->Append(7).ok());
  }
  return *arrow::Table::FromRecordBatches({*builder->Flush()});
}

const auto kExpected = ElementsAre(
    R"({"prompt":[{"role":"user","content":"1+2"}],"reward_model":{"ground_truth":null},"ids":[7]})",
    R"({"prompt":[{"role":"user","content":"3+4"}],"reward_model":{"ground_truth":null},"ids":[7]})");

TEST(ArrowRows, ReadsParquetBesideGrpc) {
  grpc::ServerBuilder server_builder;
  const auto server = server_builder.BuildAndStart();
  const TempFolder folder;
  const std::string path = folder / "a.parquet";
  const auto out = *arrow::io::FileOutputStream::Open(path);
  ASSERT_TRUE(parquet::arrow::WriteTable(*VerlTable(), arrow::default_memory_pool(), out, 1).ok());
  ASSERT_TRUE(out->Close().ok());

  EXPECT_THAT(RowsOf(path), IsOkAndHolds(kExpected));
}

TEST(ArrowRows, ReadsArrowFilesAndStreams) {
  const TempFolder folder;
  const auto table = VerlTable();
  for (const bool has_footer : {true, false}) {
    const std::string path = folder / (has_footer ? "file.arrow" : "stream.arrow");
    const auto out = *arrow::io::FileOutputStream::Open(path);
    const auto writer = has_footer ? *arrow::ipc::MakeFileWriter(out, table->schema())
                                   : *arrow::ipc::MakeStreamWriter(out, table->schema());
    ASSERT_TRUE(writer->WriteTable(*table).ok() && writer->Close().ok() && out->Close().ok());

    EXPECT_THAT(RowsOf(path), IsOkAndHolds(kExpected)) << path;
  }
}

TEST(ArrowRows, BytesThatAreNoTextBecomeText) {
  const TempFolder folder;
  const std::string path = folder / "images.parquet";
  const auto schema = arrow::schema({arrow::field("image", arrow::binary())});
  auto builder = *arrow::RecordBatchBuilder::Make(schema, arrow::default_memory_pool());
  ASSERT_TRUE(builder->GetFieldAs<arrow::BinaryBuilder>(0)->Append("\x89PNG\xFF\xD8\xC3\xA9").ok());
  const auto table = *arrow::Table::FromRecordBatches({*builder->Flush()});
  const auto out = *arrow::io::FileOutputStream::Open(path);
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, 1).ok());
  ASSERT_TRUE(out->Close().ok());

  std::string image;
  ASSERT_OK(ForEachRow(path, [&image](const io::JsonFields& row) {
    image = row.json()["image"].get<std::string>();
    return absl::OkStatus();
  }));

  EXPECT_EQ(image, "\uFFFDPNG\uFFFD\uFFFD\u00E9");
}

TEST(ArrowRows, NamesAFileThatIsNoTable) {
  const TempFolder folder;
  for (const char* name : {"a.parquet", "a.arrow"}) {
    const std::string path = folder.Write(name, "no table at all");
    EXPECT_THAT(RowsOf(path),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path + ": cannot read")));
  }
}

}  // namespace
}  // namespace tandem::dataset
