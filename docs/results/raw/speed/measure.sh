#!/bin/bash
# Measures the rows of docs/results/speed.md: `measure.sh DIR OUT NAME=SHAMBA [NAME=SHAMBA ...]`.
#
# DIR takes the databases (some 6 GiB for each binary; they should fit the page cache), OUT the raw lines, one file for
# each binary and row. Binaries take turns, ROUNDS times (default 3). ROWS picks rows: random path large small warm levels
# threads; the last three use databases of the others, `random` foremost.
# Wants a machine with nothing else to do. A binary without the option --sizing is given none.
set -eu
dir=$1 out=$2
shift 2
rows=${ROWS:-random path large small warm levels threads}
reads="readrandom readrandom readmissing readmissing multireadmissing multireadrandom seekrandom readseq"
mkdir -p "$dir" "$out"

# bench FILE DATABASE WORKLOADS OPTIONS...: the lines of a run, appended to FILE.
bench() {
    local file=$1 database=$2 workloads=$3
    shift 3
    # shellcheck disable=SC2086 # A list of words.
    "$shamba" bench "$dir/$name-$database" $workloads "$@" --json >>"$out/$name-$file.jsonl"
}

# fill ROW OPTIONS...: a new database.
fill() {
    local row=$1
    shift
    rm -rf "${dir:?}/$name-$row"
    bench "$row-fill" "$row" fillrandom "$@"
}

# shape ROW OPTIONS...: a fill and all reads, in the memory that all data needs and in a part of it.
shape() {
    local row=$1
    shift
    if [ "$round" = 1 ] || [ "$row" = random ]; then fill "$row" "$@"; fi
    for budget in 256MiB 4GiB; do
        bench "$row-$budget" "$row" "$reads" --reads 1000000 --use-existing --memory-budget $budget "$@"
    done
}

for round in $(seq "${ROUNDS:-3}"); do
    for row in $rows; do
        for pair in "$@"; do
            name=${pair%%=*} shamba=${pair#*=}
            echo "$(date +%T) round $round: $row, $name" >&2
            case $row in
            random) shape random --num 10000000 ;;
            path) shape path --num 10000000 --key-shape path ;;
            large) shape large --num 2000000 --key-size 512 --value-size 512 ;;
            small) shape small --num 1000000 ;;
            warm) # Hits in memory: in the last of these, nearly every block has been read before.
                again="readrandom readrandom readrandom readrandom readrandom"
                more="--reads 1000000 --use-existing --memory-budget 4GiB"
                # shellcheck disable=SC2086
                {
                    bench warm-random random "$again" --num 10000000 $more
                    bench warm-path path "$again" --num 10000000 --key-shape path $more
                    bench warm-large large "$again readrandom readrandom" --num 2000000 --key-size 512 --value-size 512 $more
                }
                ;;
            levels)
                # Small files move down a few at a time, so that all eight levels have some.
                sizing=$("$shamba" bench --help | grep -q -- --sizing && echo "--sizing manual" || true)
                # shellcheck disable=SC2086
                [ "$round" != 1 ] || fill levels --num 10000000 --size-ratio 2 --write-buffer 4MiB --file-size 2MiB $sizing
                for budget in 256MiB 4GiB; do
                    bench "levels-$budget" levels "readrandom readmissing readmissing multireadmissing" \
                        --num 10000000 --reads 1000000 --use-existing --memory-budget $budget
                done
                ;;
            threads) # Of the row `random`.
                for threads in 1 2; do
                    bench "threads-$threads" random "readrandom readrandom readmissing readmissing multireadmissing seekrandom" \
                        --num 10000000 --reads 2000000 --use-existing --memory-budget 4GiB --threads $threads
                done
                ;;
            *) echo "no row $row" >&2 && exit 64 ;;
            esac
        done
    done
done
