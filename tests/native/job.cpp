// The parent's words: read as they are meant, or refused.
#include "job.h"

#include <unistd.h>

#include "claims.h"

using namespace gf_emulator;

namespace {

const std::string whole =
    "module /somewhere/kernel.so\n"
    "run 4\n"
    "order seeded 17\n"
    "count 0\n"
    "check 1\n"
    "outputs 8192\n"
    "buffer x input 64 image 4096\n"
    "buffer y output 32 poison 128\n"
    "buffer scratch workspace 16 zero\n"
    "argument pointer 0 4\n"
    "argument null\n"
    "argument scalar 4294967291\n"
    "launch k 6 4 2 32 2 1 1024 2 1 1\n"
    "sample 0 7 23\n"
    "launch other 1 1 1 64 1 1 0 1 1 1\n"
    "own_arguments\n"
    "launch_argument pointer 1 0\n";

bool reads(const std::string& text, Job& job) {
    int ends[2];
    CLAIM(pipe(ends) == 0 && write(ends[1], text.data(), text.size()) == ssize_t(text.size()));
    close(ends[1]);
    const bool read = read_job(ends[0], job);
    close(ends[0]);
    return read;
}

std::string replaced(const std::string& old, const std::string& with) {
    std::string text = whole;
    const std::size_t at = text.find(old);
    CLAIM(at != std::string::npos);
    return text.replace(at, old.size(), with);
}

}  // namespace

CASE(a_job_is_read_as_it_is_meant) {
    Job job;
    CLAIM(reads(whole, job));
    SAME(job.module_path, "/somewhere/kernel.so");
    SAME(job.runs.size(), 1u);
    const RunSpec& run = job.runs[0];
    SAME(run.index, 4);
    CLAIM(run.order.is_seeded() && !run.count && run.check);
    SAME(run.outputs, 8192u);
    SAME(run.buffers.size(), 3u);
    CLAIM(run.buffers[0].is_input && run.buffers[0].fill == BufferSpec::Fill::image && run.buffers[0].bytes == 64);
    SAME(run.buffers[0].image, 4096u);
    CLAIM(run.buffers[1].is_output && run.buffers[1].fill == BufferSpec::Fill::poison);
    SAME(run.buffers[1].poison, 128);
    CLAIM(!run.buffers[2].is_input && !run.buffers[2].is_output && run.buffers[2].fill == BufferSpec::Fill::zero);
    SAME(run.arguments.size(), 3u);
    CLAIM(run.arguments[0].is_pointer && run.arguments[0].buffer == 0 && run.arguments[0].value == 4);
    CLAIM(run.arguments[1].is_pointer && run.arguments[1].buffer == -1);
    CLAIM(!run.arguments[2].is_pointer && run.arguments[2].value == 4294967291u);
    SAME(run.launches.size(), 2u);
    const LaunchSpec& launch = run.launches[0];
    SAME(launch.entry, "k");
    CLAIM(launch.grid.x == 6 && launch.grid.y == 4 && launch.grid.z == 2);
    CLAIM(launch.block.x == 32 && launch.block.y == 2);
    CLAIM(launch.cluster.x == 2 && launch.dynamic_bytes == 1024 && !launch.own_arguments);
    CLAIM((launch.sample == std::vector<std::uint64_t>{0, 7, 23}) && run.launches[1].sample.empty());
    CLAIM(run.launches[1].own_arguments && run.launches[1].arguments.size() == 1);
}

CASE(a_tensor_map_is_read_with_its_numbers) {
    Job job;
    CLAIM(reads(replaced("argument null", "argument tensor_map 1 3 2 128 1 7 0 64 100 8 128 12800 64 32 1"), job));
    const ArgumentSpec& argument = job.runs[0].arguments[1];
    CLAIM(argument.is_tensor_map && argument.buffer == 1);
    const EmulatedTensorMap& map = argument.tensor_map;
    CLAIM(map.rank == 3 && map.element_bytes == 2 && map.swizzle_bytes == 128 && map.fill_nan == 1 &&
          map.element_type == int(AtomicType::float16));
    CLAIM(map.sizes[0] == 64 && map.sizes[1] == 100 && map.sizes[2] == 8 && map.sizes[3] == 1);
    CLAIM(map.strides_bytes[0] == 128 && map.strides_bytes[1] == 12800 && map.strides_bytes[2] == 0);
    CLAIM(map.box[0] == 64 && map.box[1] == 32 && map.box[2] == 1 && map.box[3] == 1);
    SAME(map.tag, tensor_map_tag);
    CLAIM(!job.runs[0].arguments[0].is_tensor_map && !job.runs[0].arguments[2].is_tensor_map);
}

CASE(a_packed_value_has_pointers_and_maps) {
    Job job;
    const std::string bytes(2 * 192, '0'), map = " 1 64 1 1 4 0 0 5 1 32 32";
    CLAIM(reads(replaced("argument null", "argument packed " + bytes + " 1 8 0" + map), job));
    const ArgumentSpec& argument = job.runs[0].arguments[1];
    SAME(argument.packed.size(), 192u);
    CLAIM(argument.pointers.size() == 1 && argument.pointers[0].offset == 8 && argument.pointers[0].buffer == 0);
    CLAIM(argument.maps.size() == 1 && argument.maps[0].offset == 64 && argument.maps[0].buffer == 1);
    SAME(argument.maps[0].value.tag, copied_tensor_map_tag);
    const std::string too_short(2 * 190, '0');
    CLAIM(!reads(replaced("argument null", "argument packed " + too_short + " 0" + map), job));
    CLAIM(!reads(replaced("argument null", "argument packed " + bytes + " 0"), job));
}

CASE(what_does_not_read_as_a_job_is_refused) {
    for (const std::string& text :
         {std::string(), std::string("module b\n"), replaced("outputs 8192", "outputs"),
          replaced("module /somewhere/kernel.so\n", ""), replaced("run 4\n", ""), replaced("seeded 17", "sideways"),
          replaced("seeded 17", "seeded"), replaced("count 0", "count"), replaced("zero", "noise"),
          replaced("16 zero", "many zero"), replaced("image 4096", "image"), replaced("image 4096", "image x"), replaced("1024 2 1 1", "1024 2 1"),
          replaced("6 4 2", "six 4 2"), replaced("argument null", "argument nothing"),
          replaced("argument pointer 0 4", "argument pointer 0"),
          replaced("argument scalar 4294967291", "argument scalar x"),
          replaced("argument null", "argument tensor_map"), replaced("argument null", "argument tensor_map -1 1 2 0 0 7 8 8"),
          replaced("argument null", "argument tensor_map 0 0 2 0 0 7"),
          replaced("argument null", "argument tensor_map 0 6 2 0 0 7 8 8 8 8 8 8 16 16 16 16 16 8 8 8 8 8 8"),
          replaced("argument null", "argument tensor_map 0 2 2 0 0 7 8 8 16 8"),
          replaced("argument null", "argument tensor_map 0 1 2 0 0 7 eight 8"),
          replaced("sample 0 7 23", "blocks 0 7 23"), replaced("sample 0 7 23", "sample"),
          replaced("sample 0 7 23", "sample 0 seven"), replaced("sample 0 7 23", "sample 0 7 24")}) {
        Job job;
        claims::hold(!reads(text, job), __FILE__, __LINE__, "this was read as a job:\n" + text);
    }
    Job job;
    CLAIM(!read_job(-1, job));
}
