"""The class in Java that fills statements with rows; it has Java 8's words, as Janino takes them."""

NAME = "PenstockRows"
SOURCE = """
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Calendar;
import java.util.List;
import java.util.Properties;
import java.util.TimeZone;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;

public class PenstockRows {
    /** Whether the driver refuses java.time. */
    private boolean isOld = false;

    public Connection connected(Driver driver, String url, Properties settings, int networkMillis) throws Exception {
        Connection connection = driver.connect(url, settings);
        if (connection == null) throw new SQLException("the driver " + driver.getClass().getName() + " does not take this url");
        try {
            connection.setNetworkTimeout(java.util.concurrent.ForkJoinPool.commonPool(), networkMillis);
        } catch (Throwable error) {
            // not every driver has it
        }
        try {
            if (!connection.getMetaData().supportsTransactions())
                throw new SQLException("it has no transactions, so rows could not be delivered once");
            connection.setAutoCommit(false);
            if (connection.getMetaData().supportsTransactionIsolationLevel(Connection.TRANSACTION_READ_COMMITTED))
                connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            return connection;
        } catch (SQLException error) {
            close(connection);
            throw error;
        }
    }

    public void close(AutoCloseable opened) {
        try {
            if (opened instanceof Connection) ((Connection) opened).rollback();
        } catch (Exception error) {
            // closed already
        }
        try {
            opened.close();
        } catch (Exception error) {
            // closed already
        }
    }

    public void rollBack(Connection connection) {
        try {
            connection.rollback();
        } catch (SQLException error) {
            // closed already
        }
    }

    public void execute(Connection connection, String text) throws SQLException {
        Statement statement = connection.createStatement();
        try {
            statement.execute(text);
        } finally {
            close(statement);
        }
    }

    public String described(Connection connection, String query) {
        try {
            Statement statement = connection.createStatement();
            try {
                ResultSet rows = statement.executeQuery(query);
                ResultSetMetaData columns = rows.getMetaData();
                StringBuilder told = new StringBuilder();
                for (int each = 1; each <= columns.getColumnCount(); each++)
                    told.append(columns.getColumnLabel(each)).append('\\001').append(columns.getColumnType(each))
                        .append('\\001').append(columns.getColumnTypeName(each)).append('\\002');
                return told.toString();
            } finally {
                close(statement);
                connection.rollback();
            }
        } catch (SQLException error) {
            rollBack(connection);
            return null;
        }
    }

    /** "!" where the server is away, else "="; then what the database says. */
    public String reason(Throwable error) {
        Throwable told = error;
        SQLException last = null;
        for (int depth = 0; told != null && depth < 32; depth++) {
            Throwable next = null;
            if (told instanceof SQLException) {
                last = (SQLException) told;
                next = last.getNextException();
            }
            if (next == null) next = told.getCause();
            if (next == null || next == told) break;
            told = next;
        }
        if (last == null) return "=" + told.getClass().getSimpleName() + ": " + told.getMessage();
        String state = last.getSQLState() == null ? "" : last.getSQLState();
        boolean isAway = state.startsWith("08") || state.startsWith("57P") || state.startsWith("40")
            || state.startsWith("53") || state.equals("55P03") || last instanceof java.sql.SQLTransientException
            || last instanceof java.sql.SQLRecoverableException || last instanceof java.sql.SQLNonTransientConnectionException;
        return (isAway ? "!" : "=") + last.getMessage();
    }

    /** A byte for each row: 1 where the statement changed something. */
    public byte[] run(PreparedStatement statement, byte[] rows, String kinds, String typeCodes, boolean isCounted) throws Exception {
        String[] named = typeCodes.split(",");
        int[] codes = new int[named.length];
        for (int each = 0; each < named.length; each++) codes[each] = Integer.parseInt(named[each]);
        ByteArrayOutputStream changed = new ByteArrayOutputStream();
        ArrowStreamReader reader = new ArrowStreamReader(
            new ByteArrayInputStream(rows), org.apache.spark.sql.util.ArrowUtils.rootAllocator());
        try {
            VectorSchemaRoot batch = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                List vectors = batch.getFieldVectors();
                for (int row = 0; row < batch.getRowCount(); row++) {
                    fill(statement, vectors, row, kinds, codes);
                    statement.addBatch();
                }
                int[] counts = statement.executeBatch();
                for (int row = 0; isCounted && row < batch.getRowCount(); row++) {
                    int count = row < counts.length ? counts[row] : Statement.SUCCESS_NO_INFO;
                    if (count == Statement.SUCCESS_NO_INFO) {
                        fill(statement, vectors, row, kinds, codes);
                        count = statement.executeUpdate();
                    }
                    changed.write(count > 0 ? 1 : 0);
                }
            }
        } finally {
            reader.close();
        }
        return changed.toByteArray();
    }

    private void fill(PreparedStatement statement, List vectors, int row, String kinds, int[] codes) throws SQLException {
        for (int each = 0; each < vectors.size(); each++) {
            FieldVector vector = (FieldVector) vectors.get(each);
            int place = each + 1;
            if (vector.isNull(row)) {
                statement.setNull(place, codes[each]);
                continue;
            }
            switch (kinds.charAt(each)) {
                case 'i': statement.setInt(place, ((IntVector) vector).get(row)); break;
                case 'l': statement.setLong(place, ((BigIntVector) vector).get(row)); break;
                case 'b': statement.setBoolean(place, ((Boolean) vector.getObject(row)).booleanValue()); break;
                case 'h': statement.setShort(place, ((Number) vector.getObject(row)).shortValue()); break;
                case 'f': statement.setFloat(place, ((Number) vector.getObject(row)).floatValue()); break;
                case 'd': statement.setDouble(place, ((Number) vector.getObject(row)).doubleValue()); break;
                case 's': statement.setString(place, vector.getObject(row).toString()); break;
                case 'x': statement.setBytes(place, (byte[]) vector.getObject(row)); break;
                case 'm': statement.setBigDecimal(place, (BigDecimal) vector.getObject(row)); break;
                case 'D': setDate(statement, place, LocalDate.ofEpochDay(((IntVector) vector).get(row))); break;
                default: setMoment(statement, place, ((BigIntVector) vector).get(row), kinds.charAt(each) == 'Z');
            }
        }
    }

    private void setDate(PreparedStatement statement, int place, LocalDate date) throws SQLException {
        if (!isOld) {
            try {
                statement.setObject(place, date);
                return;
            } catch (SQLException error) {
                isOld = true;
            }
        }
        statement.setDate(place, java.sql.Date.valueOf(date));
    }

    private void setMoment(PreparedStatement statement, int place, long micros, boolean hasZone) throws SQLException {
        Instant moment = Instant.ofEpochSecond(Math.floorDiv(micros, 1000000L), Math.floorMod(micros, 1000000L) * 1000L);
        if (!isOld) {
            OffsetDateTime told = OffsetDateTime.ofInstant(moment, ZoneOffset.UTC);
            try {
                if (hasZone) statement.setObject(place, told);
                else statement.setObject(place, told.toLocalDateTime());
                return;
            } catch (SQLException error) {
                isOld = true;
            }
        }
        statement.setTimestamp(place, Timestamp.from(moment), Calendar.getInstance(TimeZone.getTimeZone("UTC")));
    }
}
"""
